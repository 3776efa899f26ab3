import CoreGraphics
@_exported import Foundation

public typealias AVAudioFrameCount = UInt32
public typealias AVAudioFramePosition = Int64
public typealias AVAudioPacketCount = UInt32
public enum AVAudioCommonFormat { case otherFormat, pcmFormatFloat32 }
public enum AVAudioConverterInputStatus { case haveData, noDataNow, endOfStream }
public enum AVAudioConverterOutputStatus { case haveData, inputRanDry, endOfStream, error }
public typealias AVAudioConverterInputBlock = (AVAudioPacketCount, UnsafeMutablePointer<AVAudioConverterInputStatus>) -> AVAudioBuffer?

public final class AVAudioFormat {
    public init?(commonFormat: AVAudioCommonFormat, sampleRate: Double, channels: UInt32, interleaved: Bool) {}
    public var sampleRate: Double { fatalError() }
}

public final class AVAudioFile {
    public init(forReading file: URL) throws {}
    public var length: AVAudioFramePosition { fatalError() }
    public var processingFormat: AVAudioFormat { fatalError() }
    public func read(into buffer: AVAudioPCMBuffer) throws {}
}

open class AVAudioBuffer {
    public var format: AVAudioFormat { fatalError() }
}

public final class AVAudioPCMBuffer: AVAudioBuffer {
    public init?(pcmFormat: AVAudioFormat, frameCapacity: AVAudioFrameCount) {}
    public var frameLength: AVAudioFrameCount { fatalError() }
    public var floatChannelData: UnsafePointer<UnsafeMutablePointer<Float>>? { fatalError() }
}

public final class AVAudioConverter {
    public init?(from source: AVAudioFormat, to target: AVAudioFormat) {}
    @discardableResult
    public func convert(to buffer: AVAudioBuffer, error: UnsafeMutablePointer<NSError?>?, withInputFrom input: AVAudioConverterInputBlock) -> AVAudioConverterOutputStatus { fatalError() }
}

public struct CMTime: Sendable {
    public init(seconds: Double, preferredTimescale: Int32) {}
    public var seconds: Double { fatalError() }
    public static var zero: CMTime { fatalError() }
}

public struct AVAsyncProperty<Root, Value>: Sendable {}

extension AVAsyncProperty where Root == AVURLAsset, Value == CMTime {
    public static var duration: Self { fatalError() }
}

public final class AVURLAsset {
    public init(url: URL) {}
    public func load<Value>(_ property: AVAsyncProperty<AVURLAsset, Value>) async throws -> Value { fatalError() }
}

public final class AVAssetImageGenerator {
    public init(asset: AVURLAsset) {}
    public var appliesPreferredTrackTransform: Bool = false
    public var requestedTimeToleranceBefore: CMTime = .zero
    public var requestedTimeToleranceAfter: CMTime = .zero
    public func image(at time: CMTime) async throws -> (image: CGImage, actualTime: CMTime) { fatalError() }
}
