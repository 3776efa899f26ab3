package {{ id }}

import kotlin.math.abs
import kotlin.math.ceil
import kotlin.math.max

/**
 * How an image is resized, to the last level of a byte as the Python pipeline does it.
 *
 * All work in two passes, one along rows and one along columns, with a byte between them. Each output pixel is a weighted sum of a few input
 * pixels, with weights in fixed point. When an image shrinks, [antialias] makes the filter as much wider as the image gets smaller.
 */
public enum class Resampling(internal val support: Double, internal val antialias: Boolean) {
    /** Pillow's `Image.resize` with `BILINEAR`. */
    BILINEAR(1.0, true),

    /** Pillow's `Image.resize` with `BICUBIC`. */
    BICUBIC(2.0, true),

    /** PyTorch's `interpolate(mode="bilinear")` of bytes. */
    BILINEAR_NO_ANTIALIAS(1.0, false);

    internal fun weight(distance: Double): Double {
        val x = abs(distance)
        return when {
            x >= support -> 0.0
            this != BICUBIC -> 1.0 - x
            x < 1.0 -> ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0
            else -> (((x - 5.0) * x + 8.0) * x - 4.0) * CUBIC
        }
    }

    /** Whether the height is changed first: Pillow does so, since version 13, when it loses more than twice as many pixels as the width. */
    internal fun rowsFirst(lostWidth: Int, lostHeight: Int): Boolean = antialias && lostHeight > 0 && lostHeight > 2 * lostWidth

    /** Bits behind the point of a weight: Pillow's sums of bytes fit 32 bits, PyTorch's weights fit 16. */
    internal fun fractionBits(largestWeight: Double): Int =
        if (antialias) PILLOW_BITS else (0 until PILLOW_BITS).firstOrNull { (0.5 + largestWeight * (1 shl it + 1)).toInt() >= 1 shl 15 } ?: PILLOW_BITS

    private companion object {
        const val CUBIC = -0.5
        const val PILLOW_BITS = 32 - 8 - 2
    }
}

/** Of each output pixel along one axis: the first input pixel that it takes, and the weights from there on, times 2 to the power of [bits]. */
internal class ResamplingWeights private constructor(private val first: IntArray, private val weights: Array<IntArray>, private val bits: Int) {
    /**
     * The weighted sums of bytes along the axis, for every line across it.
     *
     * Input element `e` of a line that starts at `s` is at `s + e * stride`; three channels lie side by side.
     */
    fun apply(from: ByteArray, to: ByteArray, lines: Int, fromLine: Int, toLine: Int, stride: Int) {
        val half = 1 shl bits - 1
        for (line in 0 until lines) {
            for (index in weights.indices) {
                val of = weights[index]
                val start = line * fromLine + first[index] * stride
                val end = line * toLine + index * stride
                for (channel in 0 until RgbImage.CHANNELS) {
                    var sum = half
                    for (tap in of.indices) sum += (from[start + tap * stride + channel].toInt() and 0xff) * of[tap]
                    to[end + channel] = (sum shr bits).coerceIn(0, 255).toByte()
                }
            }
        }
    }

    companion object {
        /** The weights that bring [input] pixels to [output]. */
        fun of(input: Int, output: Int, resampling: Resampling): ResamplingWeights {
            val scale = input.toDouble() / output
            val wider = if (resampling.antialias) max(scale, 1.0) else 1.0
            val support = resampling.support * wider
            val first = IntArray(output)
            val real = Array(output) { index ->
                val centre = (index + 0.5) * scale
                first[index] = max((centre - support + 0.5).toInt(), 0)
                val count = (centre + support + 0.5).toInt().coerceAtMost(input) - first[index]
                val weights = DoubleArray(count.coerceAtMost(2 * ceil(support).toInt() + 1)) { resampling.weight((it + first[index] - centre + 0.5) * (1.0 / wider)) }
                val sum = weights.sum()
                DoubleArray(weights.size) { if (sum != 0.0) weights[it] / sum else weights[it] }
            }
            val bits = resampling.fractionBits(real.maxOf { it.max() })
            return ResamplingWeights(first, Array(output) { at -> IntArray(real[at].size) { fixed(real[at][it], bits) } }, bits)
        }

        private fun fixed(weight: Double, bits: Int): Int = (weight * (1 shl bits) + if (weight < 0) -0.5 else 0.5).toInt()
    }
}
