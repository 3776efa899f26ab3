import Foundation

/// What the photos of a segmentation model are prepared by.
public struct SegmentationFacts: Decodable, Sendable {
    public let imageSize: Int
    public let mean: [Float]
    public let std: [Float]
}

/// Which of the model's masks is given: the best of three, the single one, or three for one click and else one.
public enum MaskChoice: String, Sendable, Decodable {
    case multi, single, auto
}

/// What belongs to an object: whether each pixel does, row by row.
public struct Mask: Sendable, Equatable {
    public let width: Int
    public let height: Int
    public let inside: [Bool]

    public subscript(x: Int, y: Int) -> Bool { inside[y * width + x] }
}

/// A mask, and how sure the model is.
public struct Segmentation: Sendable, Equatable {
    public let mask: Mask
    /// What the model takes the mask's overlap with the true one for, 0 to 1.
    public let iouScore: Float
    /// Above 0 where the object is in the photo.
    public let objectScore: Float
}

/// A photo that the model has looked at, for several tries of clicks.
public struct EncodedImage: Sendable {
    public let width: Int
    public let height: Int
    let features: [FloatTensor]
}

/// A photo and clicks to a mask in the photo's size.
public struct SegmentationPipeline {
    private let methods: any Methods
    private let facts: SegmentationFacts

    // From the SAM 2.1 configurations: a single mask whose area changes by more than this with the threshold is not trusted.
    private static let stabilityDelta: Float = 0.05
    private static let leastStability = 0.98

    public init(_ methods: any Methods, _ facts: SegmentationFacts) {
        self.methods = methods
        self.facts = facts
    }

    /// Segments what the clicks and boxes show. Throws `ModelError` for ones that lie outside the photo, or none.
    public func segment(_ photo: RgbImage, points: [Point] = [], boxes: [Box] = [], masks: MaskChoice = .auto) throws -> Segmentation {
        let prompts = try Prompts(points, boxes, in: (photo.width, photo.height))
        return try decode(encode(photo), prompts, masks)
    }

    /// Looks at a photo, which takes most of the time.
    public func encode(_ photo: RgbImage) throws -> EncodedImage {
        let size = facts.imageSize
        let pixels = photo.resized(width: size, height: size).normalised(mean: facts.mean, std: facts.std)
        let features = try methods.floats("encode_image", [FloatTensor(pixels, [1, 3, size, size])], count: 3)
        return EncodedImage(width: photo.width, height: photo.height, features: features)
    }

    /// As `segment` of a photo, on one that was encoded before.
    public func segment(_ image: EncodedImage, points: [Point] = [], boxes: [Box] = [], masks: MaskChoice = .auto) throws -> Segmentation {
        try decode(image, Prompts(points, boxes, in: (image.width, image.height)), masks)
    }

    private func decode(_ image: EncodedImage, _ prompts: Prompts, _ masks: MaskChoice) throws -> Segmentation {
        let answers = try methods.floats("decode_masks", image.features + prompts.tensors(facts.imageSize), count: 3)
        let (logits, scores) = (answers[0], answers[1].data)
        let index = choose(logits, scores, multi: masks == .multi || (masks == .auto && prompts.labels.count == 1))
        return Segmentation(mask: mask(logits, index, of: image), iouScore: scores[index], objectScore: answers[2].data[0])
    }

    /// The best of the last three masks, or the first if it is stable.
    private func choose(_ logits: FloatTensor, _ scores: [Float], multi: Bool) -> Int {
        let best = 1 + argmax(Array(scores[1...]))
        if multi { return best }
        let first = logits.data.prefix(logits.shape[2] * logits.shape[3])
        let inner = first.count { $0 > Self.stabilityDelta }
        let outer = first.count { $0 > -Self.stabilityDelta }
        let stability = outer > 0 ? Double(inner) / Double(outer) : 1
        return stability >= Self.leastStability ? 0 : best
    }

    /// Where the logits of the mask at `index`, resized bilinearly to the photo's size, are above 0.
    private func mask(_ logits: FloatTensor, _ index: Int, of photo: EncodedImage) -> Mask {
        let (height, width) = (logits.shape[2], logits.shape[3])
        let rows = Neighbours(from: height, to: photo.height)
        let columns = Neighbours(from: width, to: photo.width)
        var inside = [Bool](repeating: false, count: photo.width * photo.height)
        logits.data.withUnsafeBufferPointer { data in
            for y in 0..<photo.height {
                let upper = (index * height + rows.first[y]) * width
                let lower = (index * height + rows.second[y]) * width
                for x in 0..<photo.width {
                    let (left, right) = (columns.first[x], columns.second[x])
                    let (near, far) = (columns.firstShare[x], columns.secondShare[x])
                    let above = data[upper + left] * near + data[upper + right] * far
                    let below = data[lower + left] * near + data[lower + right] * far
                    inside[y * photo.width + x] = above * rows.firstShare[y] + below * rows.secondShare[y] > 0
                }
            }
        }
        return Mask(width: photo.width, height: photo.height, inside: inside)
    }
}

/// Clicks and box corners as the model takes them: x, y and label each.
private struct Prompts {
    private let size: (width: Int, height: Int)
    private var points: [(x: Float, y: Float)] = []
    private(set) var labels: [Int32] = []

    init(_ clicks: [Point], _ boxes: [Box], in size: (width: Int, height: Int)) throws {
        self.size = size
        for box in boxes {
            guard box.left < box.right, box.top < box.bottom else { throw ModelError("The box \(box) is empty.") }
            points += [(box.left, box.top), (box.right, box.bottom)]
            labels += [2, 3]
        }
        for click in clicks {
            points.append((click.x, click.y))
            labels.append(click.isObject ? 1 : 0)
        }
        for (x, y) in points where !(0...Float(size.width)).contains(x) || !(0...Float(size.height)).contains(y) {
            throw ModelError("(\(x), \(y)) lies outside the photo of \(size.width) x \(size.height) pixels.")
        }
        if points.isEmpty { throw ModelError("What should be segmented? Give at least one point or box.") }
    }

    /// The points in the resized photo, their labels, and no earlier mask.
    func tensors(_ side: Int) throws -> [any Tensor] {
        let across = Float(Double(side) / Double(size.width))
        let down = Float(Double(side) / Double(size.height))
        return [
            try FloatTensor(points.flatMap { [$0.x * across, $0.y * down] }, [1, points.count, 2]),
            try IntTensor(labels, [1, labels.count]),
            try FloatTensor([Float](repeating: 0, count: 256 * 256), [1, 1, 256, 256]),
            try FloatTensor([0], [1]),
        ]
    }
}

/// The two values beside each place of a resized line, and their shares, as torch's bilinear interpolation has them.
private struct Neighbours {
    var first: [Int] = []
    var second: [Int] = []
    var firstShare: [Float] = []
    var secondShare: [Float] = []

    init(from length: Int, to count: Int) {
        let scale = Float(length) / Float(count)
        for index in 0..<count {
            let place = max(scale * (Float(index) + 0.5) - 0.5, 0)
            let start = min(Int(place), length - 1)
            let share = min(max(place - Float(start), 0), 1)
            first.append(start)
            second.append(min(start + 1, length - 1))
            firstShare.append(1 - share)
            secondShare.append(share)
        }
    }
}
