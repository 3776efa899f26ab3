/// What sound and text of a Whisper model are prepared by; the numbers from `end` on are token ids.
public struct SpeechFacts: Decodable, Sendable {
    public let samplingRateHz: Int
    /// The most samples of one window.
    public let windowSamples: Int
    /// The most tokens of one window, with its prompt.
    public let textPositions: Int
    public let multilingual: Bool
    public let end: Int
    public let start: Int
    public let translate: Int
    public let transcribe: Int
    public let noSpeech: Int
    public let noTimestamps: Int
    /// The first of the tokens that are times.
    public let timestamps: Int
    public let secondsATimestamp: Double
    public let latestFirstTimestamp: Int
    /// The token of each language's code.
    public let languages: [String: Int]
    public let suppress: [Int]
    public let suppressFirst: [Int]
}

/// What becomes of speech: text in its language, or in English.
public enum SpeechTask: String, Sendable, Decodable {
    case transcribe, translate
}

/// A piece of text, and when it was said.
public struct SpeechSegment: Sendable, Equatable {
    public let startSeconds: Double
    public let endSeconds: Double
    public let text: String
}

/// What was said.
public struct Transcription: Sendable, Equatable {
    /// Nil where the package has no tokenizer; its segments then hold token ids.
    public let text: String?
    /// The language's code, given or detected; nil for a model that knows English only, and for silence.
    public let language: String?
    public let segments: [SpeechSegment]
    public let tokenIds: [Int]
}

/// Sound of any length to text with times, by the rules of openai/whisper: greedy, tokens that are no speech suppressed, timestamps in
/// pairs that never go back.
public struct SpeechPipeline {
    private let methods: any Methods
    private let facts: SpeechFacts
    private let tokenizer: Tokenizer?

    /// A window whose samples all stay below this (-80 dBFS) has no speech in it, and is not decoded.
    private static let silence: Float = 1e-4
    // From openai/whisper: a window is taken for silence when both hold.
    private static let noSpeechProbability: Float = 0.6
    private static let leastLogProbability: Float = -1

    public init(_ methods: any Methods, _ facts: SpeechFacts, _ tokenizer: Tokenizer?) {
        self.methods = methods
        self.facts = facts
        self.tokenizer = tokenizer
    }

    /// Transcribes mono sound at `samplingRateHz`. Throws `ModelError` for sound, a language or a task that the model does not take.
    public func transcribe(_ sound: [Float], language: String? = nil, task: SpeechTask = .transcribe) throws -> Transcription {
        try check(sound, language, task)
        var language = language
        var segments: [SpeechSegment] = []
        var tokens: [Int] = []
        var start = 0
        while start < sound.count {
            let piece = Array(sound[start..<min(start + facts.windowSamples, sound.count)])
            guard let window = try decode(piece, language, task) else {
                start += piece.count
                continue
            }
            language = language ?? window.language
            let split = Split(window.tokens, facts, samples: piece.count)
            let offset = Double(start) / Double(facts.samplingRateHz)
            tokens += window.tokens
            segments += split.segments.map { SpeechSegment(startSeconds: offset + $0.start, endSeconds: offset + $0.end, text: text($0.tokens)) }
            start += split.usedSamples
        }
        let all = stripped(segments.map(\.text).joined())
        return Transcription(text: tokenizer == nil ? nil : all, language: language, segments: segments, tokenIds: tokens)
    }

    private func check(_ sound: [Float], _ language: String?, _ task: SpeechTask) throws {
        guard !sound.isEmpty, sound.allSatisfy(\.isFinite) else { throw ModelError("The sound has no samples, or some that are no numbers.") }
        if !facts.multilingual {
            guard language == nil || language == "en", task == .transcribe else {
                throw ModelError("This model knows English only: leave out the language and the task.")
            }
        } else if let language, facts.languages[language] == nil {
            throw ModelError("\(language) is none of the model's languages: \(facts.languages.keys.sorted().joined(separator: ", ")).")
        }
    }

    /// Without the spaces around it, which for Python are also the separators U+001C to U+001F.
    private func stripped(_ text: String) -> String {
        func isSpace(_ scalar: Unicode.Scalar) -> Bool { scalar.properties.isWhitespace || (0x1C...0x1F).contains(scalar.value) }
        let begin = text.unicodeScalars.drop(while: isSpace)
        return String(String.UnicodeScalarView(begin.reversed().drop(while: isSpace).reversed()))
    }

    private func text(_ ids: [Int]) -> String {
        tokenizer?.decode(ids) ?? ids.map(String.init).joined(separator: " ")
    }

    private struct Window {
        let tokens: [Int]
        let language: String?
    }

    /// Greedy decoding of one window; nil when there is no speech in it.
    private func decode(_ piece: [Float], _ asked: String?, _ task: SpeechTask) throws -> Window? {
        if greatestMagnitude(piece) < Self.silence { return nil }
        let features = try methods.call("log_mel", [FloatTensor(piece, [piece.count])])
        let decoder = TextDecoder(methods, try methods.call("encode", features))
        var prompt = [facts.start]
        var logits = try decoder.feed(prompt, at: 0)
        let noSpeech = softmax(logits)[facts.noSpeech]
        var language = asked
        if facts.multilingual, let spoken = asked ?? likeliestLanguage(logits), let token = facts.languages[spoken] {
            language = spoken
            prompt += [token, task == .transcribe ? facts.transcribe : facts.translate]
            logits = try decoder.feed(Array(prompt[1...]), at: 1)
        }
        let (tokens, mean) = try generate(decoder, prompt, logits)
        if noSpeech > Self.noSpeechProbability, mean < Self.leastLogProbability { return nil }
        return Window(tokens: tokens, language: language)
    }

    private func likeliestLanguage(_ logits: [Float]) -> String? {
        facts.languages.min { (-logits[$0.value], $0.value) < (-logits[$1.value], $1.value) }?.key
    }

    /// The tokens after a prompt without the one that ends the text, and the mean of their logarithmic probabilities.
    private func generate(_ decoder: TextDecoder, _ prompt: [Int], _ first: [Float]) throws -> (tokens: [Int], mean: Float) {
        var logits = first
        var tokens: [Int] = []
        var total: Float = 0
        while prompt.count + tokens.count < facts.textPositions {
            let allowed = allowed(logits, after: tokens)
            let token = argmax(allowed)
            total += allowed[token] - logSumExp(allowed)
            if token == facts.end { break }
            tokens.append(token)
            if prompt.count + tokens.count < facts.textPositions {
                logits = try decoder.feed([token], at: prompt.count + tokens.count - 1)
            }
        }
        return (tokens, total / Float(tokens.count + 1))
    }

    /// The logits of the next token of a window, minus infinity where the rules forbid it.
    private func allowed(_ logits: [Float], after tokens: [Int]) -> [Float] {
        var logits = logits
        let firstTime = facts.timestamps
        func forbid(_ range: Range<Int>) {
            for index in range { logits[index] = -.infinity }
        }
        for token in facts.suppress + [facts.noTimestamps] { logits[token] = -.infinity }
        guard let last = tokens.last else {
            for token in facts.suppressFirst { logits[token] = -.infinity }
            forbid(0..<firstTime)  // a window begins with a time
            forbid(min(firstTime + facts.latestFirstTimestamp + 1, logits.count)..<logits.count)
            return logits
        }
        let afterTime = last >= firstTime
        let afterTwo = tokens.count < 2 || tokens[tokens.count - 2] >= firstTime
        if afterTime && afterTwo {
            forbid(firstTime..<logits.count)  // a segment has begun: text follows
        } else if afterTime {
            forbid(0..<facts.end)  // a segment has ended: the next one begins, or all ends
        }
        if let latest = tokens.last(where: { $0 >= firstTime }) {
            forbid(firstTime..<(latest + (afterTime && !afterTwo ? 0 : 1)))  // time does not go back
        }
        if logSumExp(logits[firstTime...]) > logits[..<firstTime].reduce(-.infinity, max) {
            forbid(0..<firstTime)  // some time is likelier than any one word
        }
        return logits
    }
}

/// A window's tokens as segments, and how many of its samples they use up.
///
/// Two times in a row end one segment and begin the next. A window whose last segment was cut off by its end is used up to where that
/// segment began; the next window starts there.
struct Split {
    private(set) var segments: [(start: Double, end: Double, tokens: [Int])] = []
    private(set) var usedSamples: Int

    init(_ tokens: [Int], _ facts: SpeechFacts, samples: Int) {
        usedSamples = samples
        var begin = 0.0
        var ids: [Int] = []
        var lastEnd: Double?
        for token in tokens {
            guard token >= facts.timestamps else {
                ids.append(token)
                continue
            }
            let seconds = Double(token - facts.timestamps) * facts.secondsATimestamp
            if !ids.isEmpty {
                segments.append((begin, seconds, ids))
                lastEnd = seconds
            }
            begin = seconds
            ids = []
        }
        let full = samples == facts.windowSamples
        let begun = tokens.count > 1 && tokens[tokens.count - 2] >= facts.timestamps
        if full, let lastEnd, lastEnd > 0, !ids.isEmpty || begun {
            usedSamples = rounded(lastEnd * Double(facts.samplingRateHz))
        } else if !ids.isEmpty {
            segments.append((begin, Double(samples) / Double(facts.samplingRateHz), ids))
        }
    }
}
