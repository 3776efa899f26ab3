/// What photos and texts of a captioning model are prepared by.
public struct CaptionFacts: Decodable, Sendable {
    public let imageSize: Int
    public let mean: [Float]
    public let std: [Float]
    /// The most tokens that a text may have.
    public let textPositions: Int
    /// The token that begins a text, and the one that ends it.
    public let start: Int
    public let end: Int
}

/// A caption, and its tokens.
public struct Caption: Sendable, Equatable {
    /// Nil where the package has no tokenizer.
    public let text: String?
    public let tokenIds: [Int]
}

/// A photo, and a beginning of the caption if one is wanted, to a caption.
public struct CaptionPipeline {
    private let methods: any Methods
    private let facts: CaptionFacts
    private let tokenizer: Tokenizer?

    public init(_ methods: any Methods, _ facts: CaptionFacts, _ tokenizer: Tokenizer?) {
        self.methods = methods
        self.facts = facts
        self.tokenizer = tokenizer
    }

    /// Captions a photo, the likeliest token at each place. Throws `ModelError` for a prompt or a number of tokens that does not fit.
    public func caption(_ photo: RgbImage, prompt: String = "", maxTokens: Int = 20) throws -> Caption {
        let begin = try promptIds(prompt)
        guard (1...max(1, facts.textPositions - begin.count)).contains(maxTokens) else {
            throw ModelError("The caption may have 1 to \(facts.textPositions - begin.count) tokens here, not \(maxTokens).")
        }
        let size = facts.imageSize
        let pixels = photo.resized(width: size, height: size, .bicubic).normalised(mean: facts.mean, std: facts.std)
        let seen = try methods.call("encode_image", [FloatTensor(pixels, [1, 3, size, size])])
        let said = Array(begin.dropFirst()) + (try generate(begin, maxTokens, seen))
        return Caption(text: tokenizer?.decode(said), tokenIds: said)
    }

    private func promptIds(_ prompt: String) throws -> [Int] {
        if prompt.isEmpty { return [facts.start] }
        guard let tokenizer else { throw ModelError("A prompt needs a tokenizer, and this package has none.") }
        let ids = [facts.start] + (try tokenizer.encode(prompt))
        guard ids.count < facts.textPositions else {
            throw ModelError("The prompt has \(ids.count) tokens; prompt and caption together may have \(facts.textPositions).")
        }
        return ids
    }

    /// Up to `count` tokens after `begin`, without the one that ends the caption.
    private func generate(_ begin: [Int], _ count: Int, _ seen: [any Tensor]) throws -> [Int] {
        let decoder = TextDecoder(methods, seen)
        var logits = try decoder.feed(begin, at: 0)
        var tokens: [Int] = []
        while tokens.count < count {
            let token = argmax(logits)
            if token == facts.end { break }
            tokens.append(token)
            if tokens.count < count { logits = try decoder.feed([token], at: begin.count + tokens.count - 1) }
        }
        return tokens
    }
}
