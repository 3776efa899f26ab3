import Foundation

/// Text to token ids and back, by the facts of a tokenizer.json: byte-level BPE (back only), BERT's WordPiece, or whole words.
///
/// It reads the form that this package's tokenizer.json has: `model.vocab` is a list, by id. A dictionary of Swift's strings cannot hold
/// every vocabulary, since strings that look the same are equal there.
public struct Tokenizer: Sendable {
    private enum Kind { case byteLevel, wordPiece, wordLevel }

    private let kind: Kind
    /// The text of each id; nil where there is none.
    private let tokens: [String?]
    private let ids: [[UInt8]: Int]
    private let special: Set<Int>
    /// Texts that are one token wherever they stand, the longest first.
    private let added: [(text: [UInt8], id: Int)]
    private let unknown: String
    private let continuation: String
    private let longestWord: Int
    private let normalizer: Normalizer?
    /// Whether each sign is a word, as BERT has it, or signs that follow each other are one.
    private let splitsAtSigns: Bool

    /// Throws `ModelError` for a file that is no tokenizer of these kinds.
    public init(contentsOf file: URL) throws {
        let facts: TokenizerFile
        do {
            let decoder = JSONDecoder()
            decoder.keyDecodingStrategy = .convertFromSnakeCase
            facts = try decoder.decode(TokenizerFile.self, from: Data(contentsOf: file))
        } catch {
            throw ModelError("\(file.lastPathComponent) cannot be read (\(error)). Make the package again.")
        }
        let type = facts.model.type ?? "BPE"
        guard let kind: Kind = ["BPE": .byteLevel, "WordPiece": .wordPiece, "WordLevel": .wordLevel][type] else {
            throw ModelError("\(file.lastPathComponent) is a tokenizer of the kind \(type); BPE, WordPiece and WordLevel can be read.")
        }
        guard facts.normalizer.map({ $0.type == "BertNormalizer" }) ?? true else {
            throw ModelError("\(file.lastPathComponent) normalises by \(facts.normalizer?.type ?? ""); only BertNormalizer is known.")
        }
        self.kind = kind
        let added = facts.addedTokens ?? []
        let count = max(facts.model.vocab.count, (added.map(\.id).max() ?? -1) + 1)
        var tokens = facts.model.vocab + [String?](repeating: nil, count: count - facts.model.vocab.count)
        for token in added { tokens[token.id] = token.content }
        self.tokens = tokens
        ids = Dictionary(facts.model.vocab.enumerated().compactMap { id, token in token.map { (Array($0.utf8), id) } }) { first, _ in first }
        special = Set(added.filter(\.special).map(\.id))
        self.added = added.map { (Array($0.content.utf8), $0.id) }.sorted { $0.text.count > $1.text.count }
        unknown = facts.model.unkToken ?? "[UNK]"
        continuation = facts.model.continuingSubwordPrefix ?? "##"
        longestWord = facts.model.maxInputCharsPerWord ?? 100
        normalizer = facts.normalizer
        splitsAtSigns = facts.preTokenizer?.type == "BertPreTokenizer"
    }

    /// The text of token ids, without the special ones.
    public func decode(_ ids: [Int]) -> String {
        let pieces = ids.filter { !special.contains($0) }.compactMap { tokens.indices.contains($0) ? tokens[$0] : nil }
        switch kind {
        case .byteLevel: return String(decoding: pieces.flatMap(Self.bytes), as: UTF8.self)
        case .wordPiece: return pieces.enumerated().map { cleaned($1, first: $0 == 0) }.joined()
        case .wordLevel: return pieces.joined(separator: " ")
        }
    }

    /// The ids of a text, without those that begin and end one. Throws `ModelError` for a tokenizer that only decodes.
    public func encode(_ text: String) throws -> [Int] {
        guard kind != .byteLevel else { throw ModelError("This tokenizer turns ids into text, not text into ids.") }
        var found: [Int] = []
        for piece in splitAtAdded(text) {
            switch piece {
            case .token(let id): found.append(id)
            case .text(let text): found += words(normalizer?.normalised(text) ?? text).flatMap(pieces)
            }
        }
        return found
    }
}

// MARK: - byte-level BPE

extension Tokenizer {
    /// The bytes that a token's characters stand for; its own where one of them stands for none.
    private static func bytes(of token: String) -> [UInt8] {
        let bytes = token.unicodeScalars.map { byteOfScalar[$0] }
        return bytes.contains(nil) ? Array(token.utf8) : bytes.compactMap { $0 }
    }

    /// GPT-2's alphabet: bytes that print are themselves, the others the characters from U+0100 on.
    private static let byteOfScalar: [Unicode.Scalar: UInt8] = {
        let printing = Array(UInt8(33)...126) + Array(UInt8(161)...172) + Array(UInt8(174)...255)
        var table = Dictionary(uniqueKeysWithValues: printing.map { (Unicode.Scalar($0), $0) })
        for (index, byte) in (UInt8.min...UInt8.max).filter({ !printing.contains($0) }).enumerated() {
            table[Unicode.Scalar(UInt32(256 + index))!] = byte
        }
        return table
    }()
}

// MARK: - BERT's WordPiece

extension Tokenizer {
    private enum Piece {
        case text(String)
        case token(Int)
    }

    private func splitAtAdded(_ text: String) -> [Piece] {
        let bytes = Array(text.utf8)
        var pieces: [Piece] = []
        var begin = 0
        var place = 0
        while place < bytes.count {
            guard let token = added.first(where: { bytes[place...].starts(with: $0.text) }) else {
                place += 1
                continue
            }
            pieces.append(.text(String(decoding: bytes[begin..<place], as: UTF8.self)))
            pieces.append(.token(token.id))
            place += token.text.count
            begin = place
        }
        return pieces + [.text(String(decoding: bytes[begin...], as: UTF8.self))]
    }

    private enum Class { case space, word, sign }

    /// Words and signs.
    private func words(_ text: String) -> [[Unicode.Scalar]] {
        var words: [[Unicode.Scalar]] = []
        var last = Class.space
        for scalar in text.unicodeScalars {
            let kind = kind(of: scalar)
            if kind != .space {
                let goesOn = kind == last && !(kind == .sign && splitsAtSigns)
                if goesOn { words[words.count - 1].append(scalar) } else { words.append([scalar]) }
            }
            last = kind
        }
        return words
    }

    private func kind(of scalar: Unicode.Scalar) -> Class {
        if scalar.properties.isWhitespace { return .space }
        return (splitsAtSigns ? !scalar.isPunctuation : scalar.isWordCharacter) ? .word : .sign
    }

    /// The longest known beginning of a word, then of what is left; the unknown token for a word that is not made of known pieces.
    private func pieces(_ word: [Unicode.Scalar]) -> [Int] {
        let unknownId = ids[Array(unknown.utf8)].map { [$0] } ?? []
        if kind == .wordLevel { return ids[Self.utf8(word[...])].map { [$0] } ?? unknownId }
        guard word.count <= longestWord else { return unknownId }
        var found: [Int] = []
        var begin = 0
        while begin < word.count {
            let prefix = begin == 0 ? [] : Array(continuation.utf8)
            var end = word.count
            while end > begin, ids[prefix + Self.utf8(word[begin..<end])] == nil { end -= 1 }
            guard let id = ids[prefix + Self.utf8(word[begin..<end])], end > begin else { return unknownId }
            found.append(id)
            begin = end
        }
        return found
    }

    /// A token as it stands in a text: joined to the one before, or after a space, as in written English.
    private func cleaned(_ token: String, first: Bool) -> String {
        var text = token
        if !first { text = token.hasPrefix(continuation) ? String(token.dropFirst(continuation.count)) : " " + token }
        return Self.contractions.reduce(text) { $0.replacingOccurrences(of: $1.spaced, with: $1.written) }
    }

    private static let contractions: [(spaced: String, written: String)] = [
        (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" do not", " don't"),
        (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
    ]

    private static func utf8(_ scalars: ArraySlice<Unicode.Scalar>) -> [UInt8] {
        scalars.flatMap { UTF8.encode($0).map(Array.init) ?? [] }
    }
}

/// BERT's normalizer: what is taken out of a text, or changed, before it is split.
private struct Normalizer: Decodable {
    let type: String
    let cleanText: Bool?
    let handleChineseChars: Bool?
    let stripAccents: Bool?
    let lowercase: Bool?

    func normalised(_ text: String) -> String {
        var result = text
        if cleanText ?? true { result = cleaned(result) }
        if handleChineseChars ?? true { result = Self.changed(result) { $0.isChinese ? [" ", $0, " "] : [$0] } }
        if stripAccents ?? lowercase ?? true {
            result = Self.changed(result.decomposedStringWithCanonicalMapping) { $0.properties.generalCategory == .nonspacingMark ? [] : [$0] }
        }
        return lowercase ?? true ? Self.changed(result) { Array($0.properties.lowercaseMapping.unicodeScalars) } : result
    }

    /// Without control characters, every space a plain one.
    private func cleaned(_ text: String) -> String {
        Self.changed(text) { scalar in
            if scalar.properties.isWhitespace { return [" "] }
            return scalar.value == 0xFFFD || scalar.isControl ? [] : [scalar]
        }
    }

    private static func changed(_ text: String, _ change: (Unicode.Scalar) -> [Unicode.Scalar]) -> String {
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars { result.append(contentsOf: change(scalar)) }
        return String(result)
    }
}

extension Unicode.Scalar {
    fileprivate var isControl: Bool {
        [.control, .format, .privateUse].contains(properties.generalCategory)
    }

    fileprivate var isPunctuation: Bool {
        if isASCII { return (33...47).contains(value) || (58...64).contains(value) || (91...96).contains(value) || (123...126).contains(value) }
        let kinds: [Unicode.GeneralCategory] = [
            .connectorPunctuation, .dashPunctuation, .openPunctuation, .closePunctuation, .initialPunctuation, .finalPunctuation, .otherPunctuation,
        ]
        return kinds.contains(properties.generalCategory)
    }

    /// What the regular expression \w takes.
    fileprivate var isWordCharacter: Bool {
        let kinds: [Unicode.GeneralCategory] = [.nonspacingMark, .spacingMark, .enclosingMark, .decimalNumber, .connectorPunctuation]
        return properties.isAlphabetic || properties.isJoinControl || kinds.contains(properties.generalCategory)
    }

    fileprivate var isChinese: Bool {
        Self.chinese.contains { $0.contains(value) }
    }

    private static let chinese: [ClosedRange<UInt32>] = [
        0x4E00...0x9FFF, 0x3400...0x4DBF, 0x20000...0x2A6DF, 0x2A700...0x2B73F, 0x2B740...0x2B81F, 0x2B920...0x2CEAF, 0xF900...0xFAFF,
        0x2F800...0x2FA1F,
    ]
}

/// What is read of a tokenizer.json.
private struct TokenizerFile: Decodable {
    struct Model: Decodable {
        let type: String?
        let vocab: [String?]
        let unkToken: String?
        let continuingSubwordPrefix: String?
        let maxInputCharsPerWord: Int?
    }

    struct PreTokenizer: Decodable {
        let type: String
    }

    struct AddedToken: Decodable {
        let id: Int
        let content: String
        let special: Bool
    }

    let model: Model
    let normalizer: Normalizer?
    let preTokenizer: PreTokenizer?
    let addedTokens: [AddedToken]?
}

extension Resources {
    /// The tokenizer of this package; nil where it was made without one.
    static func tokenizer() throws -> Tokenizer? {
        try url("tokenizer", "json").map(Tokenizer.init(contentsOf:))
    }
}
