#if canImport(AVFoundation)
import AVFoundation

/// The frames of a video file that are shown at each 1 / framesPerSecond, upright. Throws what AVFoundation says, or `ModelError`.
public func videoFrames(of file: URL, framesPerSecond: Double) async throws -> [RgbImage] {
    let asset = AVURLAsset(url: file)
    let seconds = try await asset.load(.duration).seconds
    let generator = AVAssetImageGenerator(asset: asset)
    generator.appliesPreferredTrackTransform = true
    generator.requestedTimeToleranceBefore = .zero
    generator.requestedTimeToleranceAfter = .zero
    var frames: [RgbImage] = []
    var count = 0
    while Double(count) / framesPerSecond < seconds {
        let time = CMTime(seconds: Double(count) / framesPerSecond, preferredTimescale: 60_000)
        frames.append(try RgbImage(await generator.image(at: time).image))
        count += 1
    }
    if frames.isEmpty { throw ModelError("\(file.lastPathComponent) has no frames.") }
    return frames
}
#endif
