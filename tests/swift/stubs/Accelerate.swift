public typealias vDSP_Length = UInt
public typealias vDSP_Stride = Int

public func vDSP_maxvi(
    _ values: UnsafePointer<Float>, _ stride: vDSP_Stride, _ greatest: UnsafeMutablePointer<Float>, _ index: UnsafeMutablePointer<vDSP_Length>, _ count: vDSP_Length
) {}

public enum vDSP {
    public static func maximumMagnitude<Values: Collection>(_ values: Values) -> Float where Values.Element == Float { fatalError() }
}
