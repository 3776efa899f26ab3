/// The methods of a program: ExecuTorch on a device, a record of answers in tests.
public protocol Methods {
    /// Calls a method. Throws what the runtime says, or `ModelError`.
    func call(_ method: String, _ inputs: [any Tensor]) throws -> [any Tensor]
}

extension Methods {
    /// Calls a method whose outputs are `count` tensors of float32.
    func floats(_ method: String, _ inputs: [any Tensor], count: Int) throws -> [FloatTensor] {
        let outputs = try call(method, inputs).compactMap { $0 as? FloatTensor }
        guard outputs.count == count else {
            throw ModelError("\(method) gave \(outputs.count) tensors of float32, not \(count): the program is not the one that this package was made for.")
        }
        return outputs
    }
}
