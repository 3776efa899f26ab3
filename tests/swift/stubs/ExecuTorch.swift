// As in extension/apple/ExecuTorch/Exported of ExecuTorch 1.5, as far as it is used.
import Foundation

public enum ModuleLoadMode: Int { case file, mmap, mmapUseMlock, mmapUseMlockIgnoreErrors }

public protocol Scalar {}
extension UInt8: Scalar {}
extension Int32: Scalar {}
extension Int64: Scalar {}
extension Float: Scalar {}
extension Bool: Scalar {}

public final class AnyTensor {}

public final class Tensor<T: Scalar>: Equatable {
    public var shape: [Int] { fatalError() }
    public let anyTensor: AnyTensor

    public init(_ tensor: AnyTensor) { anyTensor = tensor }
    public convenience init(_ scalars: inout [T], shape: [Int] = [], strides: [Int] = [], dimensionOrder: [Int] = []) { fatalError() }
    public convenience init(_ scalars: [T], shape: [Int] = [], strides: [Int] = [], dimensionOrder: [Int] = []) { fatalError() }
    public convenience init(_ scalar: T) { fatalError() }
    public func scalars() -> [T] { fatalError() }
    public static func == (lhs: Tensor<T>, rhs: Tensor<T>) -> Bool { fatalError() }
}

open class Value: NSObject {
    public func tensor<T: Scalar>() -> Tensor<T>? { fatalError() }
}

public protocol ValueConvertible { func asValue() -> Value }
extension Value: ValueConvertible { public func asValue() -> Value { self } }
extension Tensor: ValueConvertible { public func asValue() -> Value { fatalError() } }

public protocol ValueSequenceConstructible { static func from(_ values: [Value]) throws -> Self }
extension Tensor: ValueSequenceConstructible { public static func from(_ values: [Value]) throws -> Self { fatalError() } }

open class Module: NSObject {
    public init(filePath: String, loadMode: ModuleLoadMode) {}
    public init(filePath: String) {}
    public func load() throws {}
    public func load(_ method: String) throws {}
}

extension Module {
    public func execute(_ method: String, _ inputs: [ValueConvertible]) throws -> [Value] { fatalError() }
    public func execute(_ method: String, _ inputs: ValueConvertible...) throws -> [Value] { fatalError() }
    public func execute<Output: ValueSequenceConstructible>(_ method: String, _ inputs: [ValueConvertible]) throws -> Output { fatalError() }
    public func execute<Output: ValueSequenceConstructible>(_ method: String, _ inputs: ValueConvertible...) throws -> Output { fatalError() }
    public func execute<Output: ValueSequenceConstructible>(_ method: String, _ input: ValueConvertible) throws -> Output { fatalError() }
}
