package {{ id }}

/**
 * A photo of [width] x [height] pixels: [pixels] holds red, green and blue of each as unsigned bytes, row by row from the top.
 *
 * It is upright: turn a photo as its EXIF orientation says before. Throws IllegalArgumentException for a number of bytes that does not fit.
 */
public class RgbImage(public val width: Int, public val height: Int, public val pixels: ByteArray) {
    init {
        require(width > 0 && height > 0) { "An image of $width x $height has no pixels." }
        require(pixels.size.toLong() == CHANNELS.toLong() * width * height) {
            "An RGB image of $width x $height has ${CHANNELS.toLong() * width * height} bytes; ${pixels.size} were given."
        }
    }

    /** This image in another size; the aspect ratio is not kept. */
    public fun resize(toWidth: Int, toHeight: Int, resampling: Resampling = Resampling.BILINEAR): RgbImage {
        require(toWidth > 0 && toHeight > 0) { "An image cannot be resized to $toWidth x $toHeight." }
        return if (resampling.rowsFirst(width - toWidth, height - toHeight)) {
            withHeight(toHeight, resampling).withWidth(toWidth, resampling)
        } else {
            withWidth(toWidth, resampling).withHeight(toHeight, resampling)
        }
    }

    private fun withWidth(to: Int, resampling: Resampling): RgbImage {
        if (to == width) return this
        val out = ByteArray(CHANNELS * to * height)
        ResamplingWeights.of(width, to, resampling).apply(pixels, out, height, CHANNELS * width, CHANNELS * to, CHANNELS)
        return RgbImage(to, height, out)
    }

    private fun withHeight(to: Int, resampling: Resampling): RgbImage {
        if (to == height) return this
        val out = ByteArray(CHANNELS * width * to)
        ResamplingWeights.of(height, to, resampling).apply(pixels, out, width, CHANNELS, CHANNELS, CHANNELS * width)
        return RgbImage(width, to, out)
    }

    /** The part of [toWidth] x [toHeight] pixels whose upper left corner is at ([left], [top]). */
    internal fun crop(left: Int, top: Int, toWidth: Int, toHeight: Int): RgbImage {
        val out = ByteArray(CHANNELS * toWidth * toHeight)
        for (y in 0 until toHeight) {
            val start = CHANNELS * ((top + y) * width + left)
            pixels.copyInto(out, CHANNELS * y * toWidth, start, start + CHANNELS * toWidth)
        }
        return RgbImage(toWidth, toHeight, out)
    }

    /** Writes the normalised pixels into [data] with the channels apart: channel `c` begins at [offset] + `c` * [channelStride]. */
    internal fun normalizeInto(data: FloatArray, offset: Int, channelStride: Int, normalization: Normalization) {
        for (channel in 0 until CHANNELS) {
            val levels = normalization.levels(channel)
            val start = offset + channel * channelStride
            for (pixel in 0 until width * height) data[start + pixel] = levels[pixels[CHANNELS * pixel + channel].toInt() and 0xff]
        }
    }

    /** The normalised image as a tensor [1, 3, height, width]. */
    internal fun toTensor(normalization: Normalization): FloatTensor {
        val data = FloatArray(CHANNELS * width * height)
        normalizeInto(data, 0, width * height, normalization)
        return FloatTensor(longArrayOf(1, CHANNELS.toLong(), height.toLong(), width.toLong()), data)
    }

    internal companion object {
        const val CHANNELS = 3
    }
}

/** How pixels become what a model takes: of a level 0 to 255 its share of 255, minus [mean], over [std], channel by channel. */
internal class Normalization(private val mean: FloatArray, private val std: FloatArray) {
    /** What each of the 256 levels becomes. */
    fun levels(channel: Int): FloatArray = FloatArray(256) { (it / 255f - mean[channel]) / std[channel] }

    companion object {
        /** Pixels as shares of full brightness. */
        val NONE: Normalization = Normalization(FloatArray(3), FloatArray(3) { 1f })
    }
}
