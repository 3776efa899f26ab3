import CoreGraphics

// On Linux, Foundation has no types of Core Foundation.
public typealias CFString = NSString
public typealias CFData = NSData
public typealias CFDictionary = NSDictionary

public final class CGImageSource {}
nonisolated(unsafe) public let kCGImageSourceCreateThumbnailFromImageAlways = CFString()
nonisolated(unsafe) public let kCGImageSourceCreateThumbnailWithTransform = CFString()
nonisolated(unsafe) public let kCGImageSourceThumbnailMaxPixelSize = CFString()
public func CGImageSourceCreateWithData(_ data: CFData, _ options: CFDictionary?) -> CGImageSource? { fatalError() }
public func CGImageSourceCreateThumbnailAtIndex(_ source: CGImageSource, _ index: Int, _ options: CFDictionary?) -> CGImage? { fatalError() }
