#if canImport(CoreGraphics)
import CoreGraphics

extension RgbImage {
    /// The pixels of a picture, upright as it is: a `UIImage` may have an orientation beside its `cgImage`, which is to be applied before.
    ///
    /// Their levels are those of the picture's own colour space, as the models were trained; what is transparent lies on black.
    /// Throws `ModelError` for a picture that cannot be drawn.
    public init(_ image: CGImage) throws {
        let space = image.colorSpace.flatMap { $0.model == .rgb && $0.supportsOutput ? $0 : nil } ?? CGColorSpaceCreateDeviceRGB()
        let (width, height) = (image.width, image.height)
        var drawn = [UInt8](repeating: 0, count: width * height * 4)
        let done = drawn.withUnsafeMutableBytes { bytes in
            let context = CGContext(
                data: bytes.baseAddress, width: width, height: height, bitsPerComponent: 8, bytesPerRow: width * 4, space: space,
                bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue
            )
            context?.draw(image, in: CGRect(x: 0, y: 0, width: width, height: height))
            return context != nil
        }
        guard done else { throw ModelError("A picture of \(width) x \(height) pixels in \(space) cannot be drawn.") }
        var pixels = [UInt8](repeating: 0, count: width * height * 3)
        for index in 0..<(width * height) {
            for channel in 0..<3 { pixels[index * 3 + channel] = drawn[index * 4 + channel] }
        }
        try self.init(width: width, height: height, pixels: pixels)
    }
}
#endif
