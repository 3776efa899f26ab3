import Foundation

/// A tensor that a method of the program takes or gives.
public protocol Tensor: Sendable {
    /// The length of each dimension.
    var shape: [Int] { get }

    /// Whether the other one has this one's shape, and its values at the same place in memory.
    func isSame(as other: any Tensor) -> Bool
}

/// A tensor and its values, row by row.
public struct TensorOf<Element: Sendable & Equatable>: Tensor, Equatable {
    public let shape: [Int]
    public let data: [Element]

    /// Throws `ModelError` unless there is a value for each place of `shape`.
    public init(_ data: [Element], _ shape: [Int]) throws {
        guard data.count == shape.reduce(1, *) else {
            throw ModelError("A tensor of shape \(shape) has \(shape.reduce(1, *)) values, not \(data.count).")
        }
        self.data = data
        self.shape = shape
    }

    /// While both are there, the same place means the same values: an array that is shared is copied before it is changed.
    public func isSame(as other: any Tensor) -> Bool {
        guard let other = other as? Self, other.shape == shape else { return false }
        return data.withUnsafeBufferPointer { ours in other.data.withUnsafeBufferPointer { ours.baseAddress == $0.baseAddress } }
    }
}

public typealias FloatTensor = TensorOf<Float>
public typealias LongTensor = TensorOf<Int64>
public typealias IntTensor = TensorOf<Int32>
public typealias ByteTensor = TensorOf<UInt8>
public typealias BoolTensor = TensorOf<Bool>

/// What went wrong, in words for the developer of the app.
public struct ModelError: LocalizedError, Equatable, CustomStringConvertible {
    public let description: String

    public init(_ description: String) {
        self.description = description
    }

    public var errorDescription: String? { description }
}
