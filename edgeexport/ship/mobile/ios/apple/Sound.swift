#if canImport(AVFoundation)
import AVFoundation

/// The samples of a sound file: mono, at this rate. Throws what AVFoundation says of a file that is no sound, or `ModelError`.
public func soundSamples(of file: URL, samplingRateHz: Int) throws -> [Float] {
    let source = try AVAudioFile(forReading: file)
    let length = AVAudioFrameCount(source.length)
    guard length > 0,
        let target = AVAudioFormat(commonFormat: .pcmFormatFloat32, sampleRate: Double(samplingRateHz), channels: 1, interleaved: false),
        let converter = AVAudioConverter(from: source.processingFormat, to: target),
        let input = AVAudioPCMBuffer(pcmFormat: source.processingFormat, frameCapacity: length)
    else {
        throw ModelError("\(file.lastPathComponent) holds no sound, or of a kind that cannot be converted.")
    }
    try source.read(into: input)
    return try converted(input, by: converter, to: target)
}

private func converted(_ input: AVAudioPCMBuffer, by converter: AVAudioConverter, to target: AVAudioFormat) throws -> [Float] {
    let frames = Double(input.frameLength) * target.sampleRate / input.format.sampleRate
    guard let output = AVAudioPCMBuffer(pcmFormat: target, frameCapacity: AVAudioFrameCount(frames) + 1024) else {
        throw ModelError("There is no memory for \(Int(frames)) samples.")
    }
    var given = false
    var failure: NSError?
    converter.convert(to: output, error: &failure) { _, status in
        status.pointee = given ? .endOfStream : .haveData
        defer { given = true }
        return given ? nil : input
    }
    if let failure { throw failure }
    guard let samples = output.floatChannelData else { throw ModelError("The converted sound has no samples.") }
    return Array(UnsafeBufferPointer(start: samples[0], count: Int(output.frameLength)))
}
#endif
