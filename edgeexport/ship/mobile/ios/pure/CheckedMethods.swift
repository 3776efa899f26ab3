/// Methods whose inputs are held against the manifest before the runtime sees them: it checks the number of elements only.
struct CheckedMethods: Methods {
    private let methods: any Methods
    private let specs: [String: MethodSpec]

    init(_ methods: any Methods, _ specs: [MethodSpec]) {
        self.methods = methods
        self.specs = Dictionary(uniqueKeysWithValues: specs.map { ($0.name, $0) })
    }

    /// Throws `ModelError` for an input that the method does not take, in words that say which and why.
    func call(_ method: String, _ inputs: [any Tensor]) throws -> [any Tensor] {
        guard let spec = specs[method] else {
            throw ModelError("There is no method \(method). There are: \(specs.keys.sorted().joined(separator: ", ")).")
        }
        try spec.check(inputs)
        let outputs = try methods.call(method, inputs)
        try spec.check(outputs: outputs)
        return outputs
    }
}

extension MethodSpec {
    fileprivate func check(_ given: [any Tensor]) throws {
        guard given.count == inputs.count else {
            throw ModelError("\(name) takes \(inputs.count) tensors (\(inputs.map(\.name).joined(separator: ", "))), not \(given.count).")
        }
        var found: [String: Int] = [:]
        for (input, tensor) in zip(inputs, given) {
            let place = "\(input.name) of \(name)"
            guard tensor.dtype == input.dtype else { throw ModelError("\(place) is of \(input.dtype), not \(tensor.dtype).") }
            guard tensor.shape.count == input.shape.count else {
                throw ModelError("\(place) has \(input.shape.count) dimensions; a tensor of shape \(tensor.shape) was given.")
            }
            for (index, (size, expected)) in zip(tensor.shape, input.shape).enumerated() {
                try check("dimension \(index) of \(place)", size, expected, &found)
            }
            try input.check(place, tensor.wholeNumbers, found)
        }
    }

    private func check(_ place: String, _ size: Int, _ expected: Size, _ found: inout [String: Int]) throws {
        let allowed: ClosedRange<Int>
        switch expected {
        case .fixed(let size): allowed = size...size
        case .named(let dimension):
            allowed = found[dimension].map { $0...$0 } ?? sizes[dimension] ?? 0...Int.max
            found[dimension] = size
        }
        guard allowed.contains(size) else {
            throw ModelError("\(place) is \(allowed.count == 1 ? "\(allowed.lowerBound)" : "\(allowed.lowerBound) to \(allowed.upperBound)") long, not \(size).")
        }
    }

    fileprivate func check(outputs given: [any Tensor]) throws {
        guard given.map(\.dtype) == outputs.map(\.dtype), given.map(\.shape.count) == outputs.map(\.shapeAtLeast.count) else {
            throw ModelError("\(name) gave \(given.map { "\($0.dtype) \($0.shape)" }), not what the manifest says: the program is another one. Make the package again.")
        }
    }
}

extension InputSpec {
    /// Whole numbers outside the range would be read as other memory, or mean nothing.
    fileprivate func check(_ place: String, _ numbers: [Int], _ sizes: [String: Int]) throws {
        guard let range, let least = numbers.min(), let greatest = numbers.max() else { return }
        let last = greatest + (firstOf.flatMap { sizes[$0] } ?? 1) - 1
        guard Double(least) >= range[0], Double(last) <= range[1] else {
            throw ModelError("\(place) holds \(least) to \(last); it takes \(Int(range[0])) to \(Int(range[1])).")
        }
    }
}

extension Tensor {
    /// The element type, as the manifest calls it.
    fileprivate var dtype: String {
        switch self {
        case is FloatTensor: return "float32"
        case is LongTensor: return "int64"
        case is IntTensor: return "int32"
        case is ByteTensor: return "uint8"
        case is BoolTensor: return "bool"
        default: return "\(type(of: self))"
        }
    }

    /// The values of a tensor of whole numbers; none of another.
    fileprivate var wholeNumbers: [Int] {
        switch self {
        case let tensor as LongTensor: return tensor.data.map(Int.init)
        case let tensor as IntTensor: return tensor.data.map(Int.init)
        case let tensor as ByteTensor: return tensor.data.map(Int.init)
        default: return []
        }
    }
}
