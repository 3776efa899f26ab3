package {{ id }}

import android.graphics.Bitmap
import android.graphics.Color

private const val ROWS_AT_ONCE = 64

/**
 * The pixels of a bitmap, without its transparency. It must be upright: ImageDecoder turns a photo as its EXIF orientation says, BitmapFactory does not.
 *
 * Throws IllegalArgumentException where the bitmap was recycled.
 */
public fun Bitmap.toRgbImage(): RgbImage {
    require(!isRecycled) { "The bitmap was recycled." }
    val readable = if (config == Bitmap.Config.HARDWARE) checkNotNull(copy(Bitmap.Config.ARGB_8888, false)) else this
    val pixels = ByteArray(3 * width * height)
    val rows = IntArray(width * ROWS_AT_ONCE)
    var at = 0
    for (top in 0 until height step ROWS_AT_ONCE) {
        val count = minOf(ROWS_AT_ONCE, height - top)
        readable.getPixels(rows, 0, width, 0, top, width, count)
        for (index in 0 until width * count) {
            val color = rows[index]
            pixels[at++] = (color shr 16).toByte()
            pixels[at++] = (color shr 8).toByte()
            pixels[at++] = color.toByte()
        }
    }
    if (readable !== this) readable.recycle()
    return RgbImage(width, height, pixels)
}

/** The image as a bitmap. */
public fun RgbImage.toBitmap(): Bitmap {
    val colors = IntArray(width * height) { pixel ->
        Color.rgb(pixels[3 * pixel].toInt() and 0xff, pixels[3 * pixel + 1].toInt() and 0xff, pixels[3 * pixel + 2].toInt() and 0xff)
    }
    return Bitmap.createBitmap(colors, width, height, Bitmap.Config.ARGB_8888)
}
