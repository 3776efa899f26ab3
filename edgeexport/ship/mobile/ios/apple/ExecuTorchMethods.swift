#if canImport(ExecuTorch)
import ExecuTorch
import Foundation

/// The methods of a program in ExecuTorch's runtime; the program is mapped into memory, not read.
///
/// One call at a time. Each method has a state of its own: ExecuTorch's Module keeps the memory of methods apart.
public final class ExecuTorchMethods: Methods {
    private let module: Module
    private var sentTensors = SentTensors<any ValueConvertible>()

    /// Throws what ExecuTorch says of a file that is no program, or one that it does not load.
    public init(contentsOf program: URL) throws {
        module = Module(filePath: program.path, loadMode: .mmap)
        try module.load()
    }

    /// Throws what ExecuTorch says, or `CancellationError` in a task that was cancelled.
    public func call(_ method: String, _ inputs: [any Tensor]) throws -> [any Tensor] {
        try Task.checkCancellation()
        let outputs: [Value] = try module.execute(method, sentTensors.values(for: inputs, of: method, make: sent))
        return try outputs.map(received)
    }
}

private func sent(_ tensor: any Tensor) throws -> any ValueConvertible {
    switch tensor {
    case let tensor as FloatTensor: return ExecuTorch.Tensor<Float>(tensor.data, shape: tensor.shape)
    case let tensor as LongTensor: return ExecuTorch.Tensor<Int64>(tensor.data, shape: tensor.shape)
    case let tensor as IntTensor: return ExecuTorch.Tensor<Int32>(tensor.data, shape: tensor.shape)
    case let tensor as ByteTensor: return ExecuTorch.Tensor<UInt8>(tensor.data, shape: tensor.shape)
    case let tensor as BoolTensor: return ExecuTorch.Tensor<Bool>(tensor.data, shape: tensor.shape)
    default: throw ModelError("The program takes no tensors of the type \(type(of: tensor)).")
    }
}

/// A copy of what a method gave: its next call writes to the same place.
private func received(_ value: Value) throws -> any Tensor {
    if let tensor: ExecuTorch.Tensor<Float> = value.tensor() { return try FloatTensor(tensor.scalars(), tensor.shape) }
    if let tensor: ExecuTorch.Tensor<Int64> = value.tensor() { return try LongTensor(tensor.scalars(), tensor.shape) }
    if let tensor: ExecuTorch.Tensor<Int32> = value.tensor() { return try IntTensor(tensor.scalars(), tensor.shape) }
    if let tensor: ExecuTorch.Tensor<UInt8> = value.tensor() { return try ByteTensor(tensor.scalars(), tensor.shape) }
    if let tensor: ExecuTorch.Tensor<Bool> = value.tensor() { return try BoolTensor(tensor.scalars(), tensor.shape) }
    throw ModelError("The program gave something that is no tensor, or one of a type that this package does not read.")
}
#endif
