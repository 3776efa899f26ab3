import Foundation

/// What the program's manifest.json says, with the facts that a pipeline prepares its inputs by.
///
/// No number of the model is written down twice: they are all read from here.
public struct Manifest<Facts: Decodable & Sendable>: Decodable, Sendable {
    /// The program's file.
    public let program: String
    public let prepare: Facts
    let methods: [MethodSpec]

    /// Throws `ModelError` for what is not such a manifest.
    public init(contentsOf file: URL) throws {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        do {
            self = try decoder.decode(Self.self, from: Data(contentsOf: file))
        } catch {
            throw ModelError("\(file.lastPathComponent) cannot be read (\(error)). Make the package again.")
        }
    }

    /// The sizes that a dimension of a method may have, as they were verified when the program was built.
    func sizes(_ method: String, _ dimension: String) throws -> ClosedRange<Int> {
        guard let sizes = methods.first(where: { $0.name == method })?.sizes[dimension] else {
            throw ModelError("The manifest has no dimension \(dimension) of \(method). Make the package again.")
        }
        return sizes
    }
}

/// For a program whose pipeline this package does not have.
struct NoFacts: Decodable, Sendable {}

/// A method of the program.
struct MethodSpec: Decodable, Sendable {
    let name: String
    let inputs: [InputSpec]
    let outputs: [OutputSpec]
    let dims: [DimensionSpec]

    /// Least to greatest size of each dimension that has a name.
    var sizes: [String: ClosedRange<Int>] {
        Dictionary(uniqueKeysWithValues: dims.map { ($0.name, ($0.verified ?? $0.asked)[0]...($0.verified ?? $0.asked)[1]) })
    }
}

/// A tensor that a method takes. `firstOf` names the dimension whose size says how many values count on from this one, all in `range`.
struct InputSpec: Decodable, Sendable {
    let name: String
    let dtype: String
    let shape: [Size]
    let range: [Double]?
    let firstOf: String?
}

struct OutputSpec: Decodable, Sendable {
    let name: String
    let dtype: String
    let shapeAtLeast: [Int]
}

struct DimensionSpec: Decodable, Sendable {
    let name: String
    let asked: [Int]
    let verified: [Int]?
}

/// A tensor's size in one dimension: a number, or what the dimension of this name has.
enum Size: Decodable, Sendable {
    case fixed(Int)
    case named(String)

    init(from decoder: any Decoder) throws {
        let value = try decoder.singleValueContainer()
        self = try (try? value.decode(Int.self)).map(Size.fixed) ?? .named(value.decode(String.self))
    }
}
