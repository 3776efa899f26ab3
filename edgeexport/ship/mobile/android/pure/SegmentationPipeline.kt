package {{ id }}

import kotlin.math.max
import kotlin.math.min

/** What segmentation needs to know of its model: photos are resized to [imageSize] x [imageSize] pixels. */
public class SegmentationFacts internal constructor(public val imageSize: Int, internal val normalization: Normalization) {
    public companion object {
        /** Reads the facts of the program. Throws org.json.JSONException when they are not there. */
        public fun of(manifest: Manifest): SegmentationFacts = SegmentationFacts(manifest.prepare.getInt("image_size"), manifest.normalization())
    }
}

/** Which of its masks the model shows: [AUTO] is [MULTI] for one click, else [SINGLE]. */
public enum class MaskChoice {
    AUTO,

    /** The best of three: a part, a larger part, the whole. */
    MULTI,

    /** The one mask for prompts that leave no doubt; the best of three where it is not stable. */
    SINGLE,
}

/** Which pixels belong to the object: [inside] has one value a pixel, row by row from the top. */
public class Mask(public val width: Int, public val height: Int, public val inside: BooleanArray) {
    /** Whether the pixel in column [x] of row [y] belongs to the object. */
    public operator fun get(x: Int, y: Int): Boolean = inside[y * width + x]
}

/** A [mask] in the photo's size, how well the model thinks it fits ([iouScore]), and how sure it is that there is an object (above 0: yes). */
public class Segmentation(public val mask: Mask, public val iouScore: Float, public val objectScore: Float)

/** A photo of [width] x [height] pixels that the model has seen; any number of prompts can be tried on it. */
public class EncodedImage internal constructor(public val width: Int, public val height: Int, internal val features: List<FloatTensor>)

/** Promptable segmentation: a photo and clicks to a mask in the photo's size. */
public class SegmentationPipeline(private val methods: Methods, private val facts: SegmentationFacts) {
    /**
     * Segments what [points] and [boxes], in pixels of the photo, show.
     *
     * Throws IllegalArgumentException when there are none, or one lies outside the photo.
     */
    public fun segment(image: RgbImage, points: List<Point> = listOf(), boxes: List<Box> = listOf(), masks: MaskChoice = MaskChoice.AUTO): Segmentation {
        requirePrompts(points, boxes, image.width, image.height)
        return segment(encode(image), points, boxes, masks)
    }

    /** Looks at a photo, which takes most of the time, so that several prompts can be tried on it. */
    public fun encode(image: RgbImage): EncodedImage {
        val resized = image.resize(facts.imageSize, facts.imageSize)
        return EncodedImage(image.width, image.height, methods.callForFloats("encode_image", listOf(resized.toTensor(facts.normalization))))
    }

    /** As [segment] of a photo, on one that was encoded before. */
    public fun segment(image: EncodedImage, points: List<Point> = listOf(), boxes: List<Box> = listOf(), masks: MaskChoice = MaskChoice.AUTO): Segmentation {
        requirePrompts(points, boxes, image.width, image.height)
        val count = 2 * boxes.size + points.size
        val prompts = listOf(
            FloatTensor(longArrayOf(1, count.toLong(), 2), coordinates(points, boxes, image)),
            IntTensor(longArrayOf(1, count.toLong()), labels(points, boxes)),
            FloatTensor(longArrayOf(1, 1, MASK_INPUT, MASK_INPUT), FloatArray((MASK_INPUT * MASK_INPUT).toInt())),
            FloatTensor(longArrayOf(1), floatArrayOf(0f)),
        )
        val (logits, scores, objectScore) = methods.callForFloats("decode_masks", image.features + prompts)
        val (height, width) = logits.shape.takeLast(2).map(Long::toInt)
        val ofAll = FloatTensor(logits.shape.copyOfRange(1, 4), logits.item(0))
        val chosen = choose(ofAll, scores.data, masks == MaskChoice.MULTI || (masks == MaskChoice.AUTO && count == 1))
        val full = interpolate(ofAll.item(chosen), width, height, image.width, image.height)
        return Segmentation(Mask(image.width, image.height, BooleanArray(full.size) { full[it] > 0f }), scores.data[chosen], objectScore.data[0])
    }

    /** Corners of boxes, then points, in pixels of the resized photo. */
    private fun coordinates(points: List<Point>, boxes: List<Box>, image: EncodedImage): FloatArray {
        val given = boxes.flatMap { listOf(it.left, it.top, it.right, it.bottom) } + points.flatMap { listOf(it.x, it.y) }
        val scale = floatArrayOf((facts.imageSize.toDouble() / image.width).toFloat(), (facts.imageSize.toDouble() / image.height).toFloat())
        return FloatArray(given.size) { given[it] * scale[it % 2] }
    }

    private fun labels(points: List<Point>, boxes: List<Box>): IntArray =
        (boxes.flatMap { listOf(UPPER_LEFT, LOWER_RIGHT) } + points.map { if (it.isObject) OBJECT else BACKGROUND }).toIntArray()

    /** Which of the four masks [4, h, w] to show: the best of the last three, or the first if it is stable. */
    private fun choose(logits: FloatTensor, scores: FloatArray, multi: Boolean): Int {
        val best = 1 + scores.copyOfRange(1, scores.size).indexOfLargest()
        if (multi) return best
        val single = logits.item(0)
        val inner = single.count { it > STABILITY_DELTA }
        val outer = single.count { it > -STABILITY_DELTA }
        val stability = if (outer > 0) inner.toDouble() / outer else 1.0
        return if (stability >= STABILITY_LEAST) 0 else best
    }

    private companion object {
        const val BACKGROUND = 0
        const val OBJECT = 1
        const val UPPER_LEFT = 2
        const val LOWER_RIGHT = 3
        const val MASK_INPUT = 256L

        // From the SAM 2.1 configurations: a single mask whose area changes by more than this with the threshold is not trusted.
        const val STABILITY_DELTA = 0.05f
        const val STABILITY_LEAST = 0.98
    }
}

private fun requirePrompts(points: List<Point>, boxes: List<Box>, width: Int, height: Int) {
    require(points.isNotEmpty() || boxes.isNotEmpty()) { "What should be segmented? Give at least one point or box." }
    for (box in boxes) require(box.left < box.right && box.top < box.bottom) { "$box is empty: left < right and top < bottom are needed." }
    val places = points.map { it.x to it.y } + boxes.flatMap { listOf(it.left to it.top, it.right to it.bottom) }
    for ((x, y) in places) {
        require(x >= 0 && x <= width && y >= 0 && y <= height) { "($x, $y) lies outside the photo of $width x $height pixels." }
    }
}

/** A plane of [width] x [height] values in another size: bilinear between the centres of its values, as PyTorch's `interpolate`. */
internal fun interpolate(plane: FloatArray, width: Int, height: Int, toWidth: Int, toHeight: Int): FloatArray {
    val columns = Neighbours.of(width, toWidth)
    val rows = Neighbours.of(height, toHeight)
    val out = FloatArray(toWidth * toHeight)
    for (y in 0 until toHeight) {
        val above = rows.first[y] * width
        val below = rows.second[y] * width
        for (x in 0 until toWidth) {
            val left = columns.first[x]
            val right = columns.second[x]
            val share = columns.share[x]
            val upper = plane[above + left] * (1f - share) + plane[above + right] * share
            val lower = plane[below + left] * (1f - share) + plane[below + right] * share
            out[y * toWidth + x] = upper * (1f - rows.share[y]) + lower * rows.share[y]
        }
    }
    return out
}

/** Of each output value along one axis: the two input values that it lies between, and the share of the second. */
private class Neighbours(val first: IntArray, val second: IntArray, val share: FloatArray) {
    companion object {
        fun of(input: Int, output: Int): Neighbours {
            val scale = input.toFloat() / output
            // With one rounding, as PyTorch's fused multiply and add has.
            val place = FloatArray(output) { max((scale.toDouble() * (it + 0.5) - 0.5).toFloat(), 0f) }
            val first = IntArray(output) { min(place[it].toInt(), input - 1) }
            return Neighbours(first, IntArray(output) { min(first[it] + 1, input - 1) }, FloatArray(output) { min(place[it] - first[it], 1f) })
        }
    }
}
