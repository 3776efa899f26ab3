package {{ id }}

/** A click at ([x], [y]) pixels of the photo, on the object or, where [isObject] is false, on what is not part of it. */
public data class Point(val x: Float, val y: Float, val isObject: Boolean = true)

/** A rectangle in pixels of the photo. */
public data class Box(val left: Float, val top: Float, val right: Float, val bottom: Float)
