/// A click, in pixels of the photo: on the object, or on what is not part of it.
public struct Point: Sendable, Equatable {
    public let x: Float
    public let y: Float
    public let isObject: Bool

    public init(x: Float, y: Float, isObject: Bool = true) {
        self.x = x
        self.y = y
        self.isObject = isObject
    }
}

/// A rectangle, in pixels of the photo.
public struct Box: Sendable, Equatable {
    public let left: Float
    public let top: Float
    public let right: Float
    public let bottom: Float

    public init(left: Float, top: Float, right: Float, bottom: Float) {
        self.left = left
        self.top = top
        self.right = right
        self.bottom = bottom
    }
}
