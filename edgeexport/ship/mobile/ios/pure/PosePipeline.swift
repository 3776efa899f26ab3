/// What the photos of a pose model are prepared by, and what its points are.
public struct PoseFacts: Decodable, Sendable {
    public let imageSize: Int
    /// The grey level around a photo that is not square.
    public let padding: Int
    public let keypoints: [String]
    /// Pairs of keypoints that a skeleton's lines join, by index.
    public let skeleton: [[Int]]
}

/// A part of a body, in pixels of the photo.
public struct Keypoint: Sendable, Equatable {
    public let name: String
    public let x: Float
    public let y: Float
    /// How visible it is, 0 to 1.
    public let visibility: Float
}

/// A person in a photo.
public struct Person: Sendable, Equatable {
    /// How sure the model is, 0 to 1.
    public let score: Float
    public let box: Box
    public let keypoints: [Keypoint]
}

/// Photos to people, each with a box and keypoints in the photo's own pixels.
public struct PosePipeline {
    private let methods: any Methods
    private let facts: PoseFacts
    private let batch: ClosedRange<Int>

    /// `batch` is how many photos a call takes.
    public init(_ methods: any Methods, _ facts: PoseFacts, batch: ClosedRange<Int>) {
        self.methods = methods
        self.facts = facts
        self.batch = batch
    }

    /// The people of a photo, as those of several.
    public func detect(_ photo: RgbImage, confidence: Float = 0.25, iou: Float = 0.7, limit: Int = 300) throws -> [Person] {
        try detect([photo], confidence: confidence, iou: iou, limit: limit)[0]
    }

    /// The people of each photo, best first, at most `limit`: those whose score is above `confidence`; of two whose boxes overlap by more
    /// than the share `iou`, the better one. Throws `ModelError` for limits that are none.
    public func detect(_ photos: [RgbImage], confidence: Float = 0.25, iou: Float = 0.7, limit: Int = 300) throws -> [[Person]] {
        guard (0...1).contains(confidence), (0...1).contains(iou), limit > 0 else {
            throw ModelError("confidence and iou are 0 to 1 and limit is at least 1, not \(confidence), \(iou) and \(limit).")
        }
        var found: [[Person]] = []
        for begin in stride(from: 0, to: photos.count, by: batch.upperBound) {
            let chunk = photos[begin..<min(begin + batch.upperBound, photos.count)]
            let fits = chunk.map { Fit($0, side: facts.imageSize) }
            let images = zip(chunk, fits).map { $1.letterbox($0, padding: facts.padding) }
            let answers = try answers(to: images)
            found += fits.indices.map { people(Candidates(answers, $0), fits[$0], confidence, iou, limit) }
        }
        return found
    }

    /// Boxes [B,A,4], scores [B,A], keypoints [B,A,K,2] and visibility [B,A,K]; the last image again where the call takes more.
    private func answers(to images: [[Float]]) throws -> [FloatTensor] {
        let missing = max(0, batch.lowerBound - images.count)
        let all = images + Array(repeating: images[images.count - 1], count: missing)
        let tensor = try FloatTensor(Array(all.joined()), [all.count, 3, facts.imageSize, facts.imageSize])
        return try methods.floats("detect", [tensor], count: 4)
    }

    private func people(_ found: Candidates, _ fit: Fit, _ confidence: Float, _ iou: Float, _ limit: Int) -> [Person] {
        let likely = found.scores.indices.filter { found.scores[$0] > confidence }
        return suppressed(likely, found, iou, limit).map { index in
            let corners = found.box(index)
            let (left, top) = fit.back(corners[0], corners[1])
            let (right, bottom) = fit.back(corners[2], corners[3])
            let points = facts.keypoints.enumerated().map { place, name in
                let point = found.keypoint(index, place)
                let (x, y) = fit.back(point.x, point.y)
                return Keypoint(name: name, x: x, y: y, visibility: point.visibility)
            }
            return Person(score: found.scores[index], box: Box(left: left, top: top, right: right, bottom: bottom), keypoints: points)
        }
    }

    /// Greedy non-maximum suppression: up to `limit` of the candidates, best first, none overlapping a better one by more than `iou`.
    private func suppressed(_ candidates: [Int], _ found: Candidates, _ iou: Float, _ limit: Int) -> [Int] {
        var order = candidates.sorted { found.scores[$0] > found.scores[$1] || (found.scores[$0] == found.scores[$1] && $0 < $1) }
        var kept: [Int] = []
        while let best = order.first, kept.count < limit {
            kept.append(best)
            let one = found.box(best)
            order = order.dropFirst().filter { index in
                let other = found.box(index)
                let shared = max(min(one[2], other[2]) - max(one[0], other[0]), 0) * max(min(one[3], other[3]) - max(one[1], other[1]), 0)
                return shared <= iou * (Self.area(one) + Self.area(other) - shared)
            }
        }
        return kept
    }

    private static func area(_ box: [Float]) -> Float {
        (box[2] - box[0]) * (box[3] - box[1])
    }
}

/// What the model found in one image of a batch.
private struct Candidates {
    let scores: [Float]
    private let boxes: [Float]
    private let points: [Float]
    private let visibility: [Float]
    private let pointsEach: Int

    init(_ answers: [FloatTensor], _ image: Int) {
        func part(_ tensor: FloatTensor) -> [Float] {
            let size = tensor.data.count / tensor.shape[0]
            return Array(tensor.data[(image * size)..<((image + 1) * size)])
        }
        boxes = part(answers[0])
        scores = part(answers[1])
        points = part(answers[2])
        visibility = part(answers[3])
        pointsEach = answers[3].shape[2]
    }

    /// Left, top, right, bottom.
    func box(_ index: Int) -> [Float] {
        Array(boxes[(index * 4)..<(index * 4 + 4)])
    }

    func keypoint(_ index: Int, _ place: Int) -> (x: Float, y: Float, visibility: Float) {
        let at = index * pointsEach + place
        return (points[at * 2], points[at * 2 + 1], visibility[at])
    }
}

/// How a photo lies in the square: scaled with its aspect ratio kept, and centred.
private struct Fit {
    let photo: (width: Int, height: Int)
    let scaled: (width: Int, height: Int)
    let corner: (left: Int, top: Int)
    let side: Int

    /// The largest that fits, rounded as Ultralytics does, and nowhere below one pixel.
    init(_ image: RgbImage, side: Int) {
        let ratio = min(Double(side) / Double(image.width), Double(side) / Double(image.height))
        func length(_ of: Int) -> Int { max(rounded(Double(of) * ratio), 1) }
        func margin(_ of: Int) -> Int { rounded(Double(side - of) / 2 - 0.1) }
        photo = (image.width, image.height)
        scaled = (length(image.width), length(image.height))
        corner = (margin(scaled.width), margin(scaled.height))
        self.side = side
    }

    /// The photo in the square, on grey: [3, side, side], 0 to 1.
    func letterbox(_ image: RgbImage, padding: Int) -> [Float] {
        let levels = (0..<256).map { Float($0) / 255 }
        let inside = image.resizedWithoutAntialiasing(width: scaled.width, height: scaled.height)
        var square = [Float](repeating: levels[padding], count: 3 * side * side)
        for channel in 0..<3 {
            for y in 0..<scaled.height {
                let row = (channel * side + corner.top + y) * side + corner.left
                for x in 0..<scaled.width {
                    square[row + x] = levels[Int(inside.pixels[(y * scaled.width + x) * 3 + channel])]
                }
            }
        }
        return square
    }

    /// A point of the square in pixels of the photo, not outside it.
    func back(_ x: Float, _ y: Float) -> (Float, Float) {
        func back(_ place: Float, _ corner: Int, _ scaled: Int, _ length: Int) -> Float {
            min(max((place - Float(corner)) / (Float(scaled) / Float(length)), 0), Float(length))
        }
        return (back(x, corner.left, scaled.width, photo.width), back(y, corner.top, scaled.height, photo.height))
    }
}
