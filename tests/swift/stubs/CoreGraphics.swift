@_exported import Foundation

public enum CGColorSpaceModel { case unknown, monochrome, rgb, cmyk }

public final class CGColorSpace {
    public var model: CGColorSpaceModel { fatalError() }
    public var supportsOutput: Bool { fatalError() }
}

public func CGColorSpaceCreateDeviceRGB() -> CGColorSpace { fatalError() }

public enum CGImageAlphaInfo: UInt32 { case none, premultipliedLast, premultipliedFirst, last, first, noneSkipLast, noneSkipFirst, alphaOnly }

public final class CGImage {
    public var width: Int { fatalError() }
    public var height: Int { fatalError() }
    public var colorSpace: CGColorSpace? { fatalError() }
}

public final class CGContext {
    public init?(data: UnsafeMutableRawPointer?, width: Int, height: Int, bitsPerComponent: Int, bytesPerRow: Int, space: CGColorSpace, bitmapInfo: UInt32) {}
    public func draw(_ image: CGImage, in rect: CGRect) {}
    public func makeImage() -> CGImage? { fatalError() }
}
