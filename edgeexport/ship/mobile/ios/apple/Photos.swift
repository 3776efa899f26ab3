#if canImport(ImageIO)
import CoreGraphics
import Foundation
import ImageIO

extension RgbImage {
    /// A photo from a file's bytes (JPEG, HEIC, PNG, ...), turned upright as its EXIF says. Throws `ModelError` for what is no photo.
    public init(data: Data) throws {
        try self.init(uprightPicture(data))
    }
}

/// A picture from a file's bytes, turned upright as its EXIF says. Throws `ModelError` for what is no picture.
public func uprightPicture(_ data: Data) throws -> CGImage {
    let options: [CFString: Any] = [
        kCGImageSourceCreateThumbnailFromImageAlways: true, kCGImageSourceCreateThumbnailWithTransform: true,
        kCGImageSourceThumbnailMaxPixelSize: Int(Int32.max),
    ]
    guard let source = CGImageSourceCreateWithData(data as CFData, nil),
        let image = CGImageSourceCreateThumbnailAtIndex(source, 0, options as CFDictionary)
    else {
        throw ModelError("This is not a picture that can be read.")
    }
    return image
}
#endif
