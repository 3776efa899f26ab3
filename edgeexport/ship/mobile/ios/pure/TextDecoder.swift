/// A text decoder whose state is inside the program. A call at position 0 begins a new text.
///
/// It takes a prompt token by token too: ExecuTorch's module keeps the memory of each method apart, so what `prefill` writes
/// `decode_step` would not see.
struct TextDecoder {
    private let methods: any Methods
    private let about: [any Tensor]

    /// `about` is what the text is about: the tensors that the encoder gave.
    init(_ methods: any Methods, _ about: [any Tensor]) {
        self.methods = methods
        self.about = about
    }

    /// The logits of what follows `tokens`, the first of which is at `position`.
    func feed(_ tokens: [Int], at position: Int) throws -> [Float] {
        var logits: [Float] = []
        for (index, token) in tokens.enumerated() {
            let step: [any Tensor] = [try LongTensor([Int64(token)], [1, 1]), try LongTensor([Int64(position + index)], [1])]
            logits = try methods.floats("decode_step", step + about, count: 1)[0].data
        }
        return logits
    }
}
