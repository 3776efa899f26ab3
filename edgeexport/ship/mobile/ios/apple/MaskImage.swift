#if canImport(CoreGraphics)
import CoreGraphics

extension Mask {
    /// The mask as a picture to lay over the photo: blue where the object is, transparent elsewhere. Nil where there is no memory for it.
    public func overlay() -> CGImage? {
        var pixels = [UInt8](repeating: 0, count: width * height * 4)
        for (index, isInside) in inside.enumerated() where isInside {
            pixels.replaceSubrange((index * 4)..<(index * 4 + 4), with: [15, 72, 128, 128])  // premultiplied by its alpha of 128
        }
        return pixels.withUnsafeMutableBytes { bytes in
            CGContext(
                data: bytes.baseAddress, width: width, height: height, bitsPerComponent: 8, bytesPerRow: width * 4, space: CGColorSpaceCreateDeviceRGB(),
                bitmapInfo: CGImageAlphaInfo.premultipliedLast.rawValue
            )?.makeImage()
        }
    }
}
#endif
