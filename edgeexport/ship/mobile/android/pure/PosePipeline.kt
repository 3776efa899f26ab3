package {{ id }}

import kotlin.math.max
import kotlin.math.min

/**
 * What pose needs to know of its model: the names of its [keypoints], and the [skeleton] to draw, as pairs of indices into them.
 *
 * A photo is scaled to fit a square of `imageSize` pixels whose rest has the grey value `padding`.
 */
public class PoseFacts internal constructor(
    public val keypoints: List<String>,
    public val skeleton: List<Pair<Int, Int>>,
    internal val imageSize: Int,
    internal val padding: Int,
    internal val batches: IntRange,
) {
    public companion object {
        /** Reads the facts of the program. Throws org.json.JSONException when they are not there. */
        public fun of(manifest: Manifest): PoseFacts = with(manifest.prepare) {
            val lines = getJSONArray("skeleton").let { List(it.length(), it::getJSONArray) }
            PoseFacts(
                getJSONArray("keypoints").strings(), lines.map { it.getInt(0) to it.getInt(1) }, getInt("image_size"), getInt("padding"),
                manifest.sizes("detect", "batch"),
            )
        }
    }
}

/** A point of the body at ([x], [y]) pixels of the photo; [visibility] is how sure the model is of it, 0 to 1. */
public data class Keypoint(val name: String, val x: Float, val y: Float, val visibility: Float)

/** A person in a photo: how sure the model is ([score], 0 to 1), where, and the points of the body in the order of [PoseFacts.keypoints]. */
public data class Person(val score: Float, val box: Box, val keypoints: List<Keypoint>)

/** Pose: photos to the people in them, each with a box and keypoints in the photo's own pixels. */
public class PosePipeline(private val methods: Methods, private val facts: PoseFacts) {
    /** The people in one photo, best first; see the function of several photos. */
    public fun detect(image: RgbImage, confidence: Float = 0.25f, iou: Float = 0.7f, limit: Int = 300): List<Person> =
        detect(listOf(image), confidence, iou, limit).single()

    /**
     * The people in each photo, or frame of a video, best first: at most [limit] whose score is above [confidence].
     *
     * Of two whose boxes overlap by more than [iou] of their union, the one with the lower score is dropped. As many photos are looked at at once
     * as the program takes. Throws IllegalArgumentException for limits that are none.
     */
    public fun detect(images: List<RgbImage>, confidence: Float = 0.25f, iou: Float = 0.7f, limit: Int = 300): List<List<Person>> {
        require(confidence in 0f..1f && iou in 0f..1f) { "confidence and iou are from 0 to 1, not $confidence and $iou." }
        require(limit >= 1) { "limit must be at least 1, not $limit." }
        return images.chunked(facts.batches.last).flatMap { chunk ->
            val fits = chunk.map { Fit.of(it, facts.imageSize) }
            val answers = methods.callForFloats("detect", listOf(batch(chunk, fits)))
            fits.mapIndexed { index, fit -> people(answers.map { it.item(index) }, fit, confidence, iou, limit) }
        }
    }

    /** The photos in their squares [B, 3, side, side]; the last is repeated where the program takes more. */
    private fun batch(images: List<RgbImage>, fits: List<Fit>): FloatTensor {
        val count = max(images.size, facts.batches.first)
        val plane = facts.imageSize * facts.imageSize
        val data = FloatArray(count * RgbImage.CHANNELS * plane)
        for (index in 0 until count) {
            val taken = min(index, images.lastIndex)
            fits[taken].letterbox(images[taken], facts.padding).normalizeInto(data, index * RgbImage.CHANNELS * plane, plane, Normalization.NONE)
        }
        val side = facts.imageSize.toLong()
        return FloatTensor(longArrayOf(count.toLong(), RgbImage.CHANNELS.toLong(), side, side), data)
    }

    /** One photo's boxes [A, 4], scores [A], keypoints [A, K, 2] and visibility [A, K] to the people. */
    private fun people(answers: List<FloatArray>, fit: Fit, confidence: Float, iou: Float, limit: Int): List<Person> {
        val (boxes, scores, keypoints, visibility) = answers
        val likely = scores.indices.filter { scores[it] > confidence }
        return suppress(boxes, scores, likely, iou, limit).map { index ->
            val points = facts.keypoints.mapIndexed { number, name ->
                val at = index * facts.keypoints.size + number
                Keypoint(name, fit.backX(keypoints[2 * at]), fit.backY(keypoints[2 * at + 1]), visibility[at])
            }
            val (left, top, right, bottom) = boxes.copyOfRange(4 * index, 4 * index + 4)
            Person(scores[index], Box(fit.backX(left), fit.backY(top), fit.backX(right), fit.backY(bottom)), points)
        }
    }
}

/** How a photo lies in the square: scaled to [scaledWidth] x [scaledHeight], its corner at ([left], [top]). */
internal class Fit private constructor(
    private val width: Int,
    private val height: Int,
    private val side: Int,
    private val scaledWidth: Int,
    private val scaledHeight: Int,
) {
    private val left = corner(scaledWidth)
    private val top = corner(scaledHeight)

    private fun corner(length: Int): Int = ((side - length) / 2.0 - 0.1).roundHalfEven()

    /** The photo in the square, on grey. */
    fun letterbox(image: RgbImage, padding: Int): RgbImage {
        val scaled = image.resize(scaledWidth, scaledHeight, Resampling.BILINEAR_NO_ANTIALIAS)
        val square = ByteArray(RgbImage.CHANNELS * side * side) { padding.toByte() }
        val row = RgbImage.CHANNELS * scaledWidth
        for (y in 0 until scaledHeight) scaled.pixels.copyInto(square, RgbImage.CHANNELS * ((top + y) * side + left), y * row, (y + 1) * row)
        return RgbImage(side, side, square)
    }

    /** A column of the square in pixels of the photo, none outside it. */
    fun backX(x: Float): Float = ((x - left) / (scaledWidth.toFloat() / width)).coerceIn(0f, width.toFloat())

    /** A row of the square in pixels of the photo, none outside it. */
    fun backY(y: Float): Float = ((y - top) / (scaledHeight.toFloat() / height)).coerceIn(0f, height.toFloat())

    companion object {
        /** The largest that fits with the aspect ratio kept, centred; nowhere below one pixel. */
        fun of(image: RgbImage, side: Int): Fit {
            val ratio = min(side.toDouble() / image.width, side.toDouble() / image.height)
            return Fit(image.width, image.height, side, max((image.width * ratio).roundHalfEven(), 1), max((image.height * ratio).roundHalfEven(), 1))
        }
    }
}

/** Greedy non-maximum suppression: up to [limit] of the boxes [likely], best first, none overlapping a better one by more than [iou]. */
internal fun suppress(boxes: FloatArray, scores: FloatArray, likely: List<Int>, iou: Float, limit: Int): List<Int> {
    fun area(box: Int) = (boxes[4 * box + 2] - boxes[4 * box]) * (boxes[4 * box + 3] - boxes[4 * box + 1])
    fun shared(one: Int, other: Int): Float {
        val width = min(boxes[4 * one + 2], boxes[4 * other + 2]) - max(boxes[4 * one], boxes[4 * other])
        val height = min(boxes[4 * one + 3], boxes[4 * other + 3]) - max(boxes[4 * one + 1], boxes[4 * other + 1])
        return max(width, 0f) * max(height, 0f)
    }
    var order = likely.sortedByDescending { scores[it] }
    val kept = mutableListOf<Int>()
    while (order.isNotEmpty() && kept.size < limit) {
        val best = order.first()
        kept += best
        order = order.drop(1).filter { shared(best, it).let { shared -> shared <= iou * (area(best) + area(it) - shared) } }
    }
    return kept
}
