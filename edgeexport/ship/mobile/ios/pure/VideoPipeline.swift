/// What the frames of a video classification model are prepared by.
public struct VideoFacts: Decodable, Sendable {
    /// How many frames a clip has.
    public let frames: Int
    /// The rate at which frames are taken of a video.
    public let framesPerSecond: Double
    public let resizeShortSide: Int
    public let crop: Int
    public let mean: [Float]
    public let std: [Float]
    public let labels: [String]
}

/// A class, and how likely it is.
public struct VideoClass: Sendable, Equatable {
    public let label: String
    public let probability: Float
}

/// Frames to the best classes, at most five, by name.
public struct VideoPipeline {
    private let methods: any Methods
    private let facts: VideoFacts
    private let batch: ClosedRange<Int>

    /// `batch` is how many clips a call takes.
    public init(_ methods: any Methods, _ facts: VideoFacts, batch: ClosedRange<Int>) {
        self.methods = methods
        self.facts = facts
        self.batch = batch
    }

    /// Classifies frames that stand at `framesPerSecond`, by clips taken evenly over them. Throws `ModelError` where there are none.
    public func classify(_ frames: [RgbImage], clips: Int = 3) throws -> [VideoClass] {
        guard clips > 0, !frames.isEmpty else { throw ModelError("At least one frame and one clip are needed, not \(frames.count) and \(clips).") }
        let starts = clipStarts(frames.count, clips)
        var total = [Float](repeating: 0, count: facts.labels.count)
        for begin in stride(from: 0, to: starts.count, by: batch.upperBound) {
            let part = starts[begin..<min(begin + batch.upperBound, starts.count)]
            for shares in try probabilities(of: part.map { clip(frames, $0) }) {
                total = zip(total, shares).map(+)
            }
        }
        let mean = total.map { $0 / Float(starts.count) }
        let best = mean.indices.sorted { mean[$0] > mean[$1] || (mean[$0] == mean[$1] && $0 < $1) }.prefix(5)
        return best.map { VideoClass(label: facts.labels[$0], probability: mean[$0]) }
    }

    /// The probabilities of each clip.
    private func probabilities(of clips: [[Float]]) throws -> [[Float]] {
        let shape = [clips.count, 3, facts.frames, facts.crop, facts.crop]
        let logits = try methods.floats("classify", [FloatTensor(Array(clips.joined()), shape)], count: 1)[0]
        guard logits.shape == [clips.count, facts.labels.count] else {
            throw ModelError("classify gave \(logits.shape), not [\(clips.count), \(facts.labels.count)]: the program is not the one of this package.")
        }
        let classes = facts.labels.count
        return clips.indices.map { softmax(logits.data[($0 * classes)..<(($0 + 1) * classes)]) }
    }

    /// The first frames of up to `clips` clips, even over all frames; one clip when the video is short.
    private func clipStarts(_ count: Int, _ clips: Int) -> [Int] {
        let last = count - facts.frames
        if last <= 0 { return [0] }
        let clips = min(clips, last + 1)
        if clips == 1 { return [last / 2] }
        return (0..<clips).map { rounded(Double($0 * last) / Double(clips - 1)) }
    }

    /// [3, frames, crop, crop] from `start` on; a short video is stretched by repeating frames evenly.
    private func clip(_ frames: [RgbImage], _ start: Int) -> [Float] {
        let length = facts.frames
        let chosen = (0..<length).map { frames.count < length ? frames[$0 * frames.count / length] : frames[start + $0] }
        let prepared = chosen.map(cropped)
        let plane = facts.crop * facts.crop
        return (0..<3).flatMap { channel in prepared.flatMap { $0[(channel * plane)..<((channel + 1) * plane)] } }
    }

    /// The short side resized, the centre cropped, normalised: [3, crop, crop].
    private func cropped(_ frame: RgbImage) -> [Float] {
        let crop = facts.crop
        let scale = Double(facts.resizeShortSide) / Double(min(frame.width, frame.height))
        let width = max(crop, rounded(Double(frame.width) * scale))
        let height = max(crop, rounded(Double(frame.height) * scale))
        let centre = frame.resized(width: width, height: height)
            .cropped(left: (width - crop) / 2, top: (height - crop) / 2, width: crop, height: crop)
        return centre.normalised(mean: facts.mean, std: facts.std)
    }
}
