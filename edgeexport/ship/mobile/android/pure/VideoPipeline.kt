package {{ id }}

import kotlin.math.max
import kotlin.math.min

/** What video classification needs to know of its model: it was trained at [framesPerSecond], and knows the classes [labels]. */
public class VideoFacts internal constructor(
    public val framesPerSecond: Double,
    public val labels: List<String>,
    internal val frames: Int,
    internal val shortSide: Int,
    internal val crop: Int,
    internal val normalization: Normalization,
    internal val largestBatch: Int,
) {
    public companion object {
        /** Reads the facts of the program. Throws org.json.JSONException when they are not there. */
        public fun of(manifest: Manifest): VideoFacts = with(manifest.prepare) {
            VideoFacts(
                getDouble("frames_per_second"), getJSONArray("labels").strings(), getInt("frames"), getInt("resize_short_side"), getInt("crop"),
                manifest.normalization(), manifest.sizes("classify", "batch").last,
            )
        }
    }
}

/** A class by its name, with its probability. */
public data class VideoClass(val label: String, val probability: Float)

/** Video classification: frames to the best classes, at most five. */
public class VideoPipeline(private val methods: Methods, private val facts: VideoFacts) {
    /**
     * Classifies a video of which [frames] are all the frames at [VideoFacts.framesPerSecond], in their order.
     *
     * [clips] clips are taken evenly over it, and their probabilities averaged. Throws IllegalArgumentException without frames or clips.
     */
    public fun classify(frames: List<RgbImage>, clips: Int = 3): List<VideoClass> {
        require(frames.isNotEmpty()) { "The video has no frames." }
        require(clips >= 1) { "clips must be at least 1, not $clips." }
        val starts = clipStarts(frames.size, clips)
        val probabilities = starts.chunked(facts.largestBatch).flatMap { classifyClips(frames, it) }
        val mean = FloatArray(probabilities[0].size) { label -> probabilities.sumOf { it[label] }.toFloat() / starts.size }
        return mean.indices.sortedByDescending { mean[it] }.take(BEST).map { VideoClass(facts.labels[it], mean[it]) }
    }

    private fun classifyClips(frames: List<RgbImage>, starts: List<Int>): List<DoubleArray> {
        val side = facts.crop.toLong()
        val clip = RgbImage.CHANNELS * facts.frames * facts.crop * facts.crop
        val data = FloatArray(starts.size * clip)
        starts.forEachIndexed { index, start -> fill(data, index * clip, framesOf(frames, start)) }
        val batch = FloatTensor(longArrayOf(starts.size.toLong(), RgbImage.CHANNELS.toLong(), facts.frames.toLong(), side, side), data)
        val logits = methods.callForFloats("classify", listOf(batch)).first()
        return starts.indices.map { logits.item(it).softmax() }
    }

    /** First frames of up to [clips] clips, even over [count] frames; one clip when the video is short. */
    private fun clipStarts(count: Int, clips: Int): List<Int> {
        val last = count - facts.frames
        if (last <= 0) return listOf(0)
        val taken = min(clips, last + 1)
        return if (taken > 1) List(taken) { (it * last.toDouble() / (taken - 1)).roundHalfEven() } else listOf(last / 2)
    }

    /** As many frames as the model takes; a short video is stretched by repeating frames evenly. */
    private fun framesOf(frames: List<RgbImage>, start: Int): List<RgbImage> =
        if (frames.size < facts.frames) List(facts.frames) { frames[it * frames.size / facts.frames] } else frames.subList(start, start + facts.frames)

    /** Writes a clip [3, T, crop, crop] into [data] from [offset] on. */
    private fun fill(data: FloatArray, offset: Int, clip: List<RgbImage>) {
        val plane = facts.crop * facts.crop
        clip.forEachIndexed { index, frame -> crop(frame).normalizeInto(data, offset + index * plane, clip.size * plane, facts.normalization) }
    }

    /** The short side resized, the centre cut out. */
    private fun crop(frame: RgbImage): RgbImage {
        val scale = facts.shortSide.toDouble() / min(frame.width, frame.height)
        val width = max(facts.crop, (frame.width * scale).roundHalfEven())
        val height = max(facts.crop, (frame.height * scale).roundHalfEven())
        return frame.resize(width, height).crop((width - facts.crop) / 2, (height - facts.crop) / 2, facts.crop, facts.crop)
    }

    private companion object {
        const val BEST = 5
    }
}
