package {{ id }}

import org.json.JSONObject
import kotlin.math.abs

/** What pose says to the inputs of [run], and how far that is from the recorded result, whose numbers are rounded. */
public fun poseFigures(run: GoldenRun, methods: Methods, manifest: Manifest): List<Figure> {
    val limits = Triple(run.inputs.getDouble("confidence").toFloat(), run.inputs.getDouble("iou").toFloat(), run.inputs.getInt("limit"))
    val said = PosePipeline(methods, PoseFacts.of(manifest)).detect(run.image("image"), limits.first, limits.second, limits.third)
    val pairs = said.zip(run.result.getJSONArray("people").objects())
    return listOf(
        Figure.equal("number of people", said.size, run.result.getJSONArray("people").length()),
        Figure.equal("names of keypoints", pairs.all { (ours, theirs) -> ours.keypoints.map { it.name } == theirs.getJSONObject("keypoints").keys().asSequence().toList() }, true),
        Figure("scores", pairs.maxOf { (ours, theirs) -> abs(ours.score - theirs.getDouble("score")) }, 1e-5),
        Figure("boxes in pixels", pairs.maxOf { (ours, theirs) -> ours.box.differenceTo(theirs.getJSONArray("box").floats()) }, 1e-3),
        Figure("keypoints in pixels", pairs.maxOf { (ours, theirs) -> ours.keypoints.maxOf { it.differenceTo(theirs) } }, 1e-3),
        Figure("visibility", pairs.maxOf { (ours, theirs) -> ours.keypoints.maxOf { abs(it.visibility - it.recorded(theirs)[2]).toDouble() } }, 1e-4),
    )
}

private fun <T> List<T>.maxOf(difference: (T) -> Double): Double = maxOfOrNull(difference) ?: 0.0

private fun Box.differenceTo(recorded: FloatArray): Double = Replay.difference(floatArrayOf(left, top, right, bottom), recorded).toDouble()

private fun Keypoint.recorded(person: JSONObject): FloatArray = person.getJSONObject("keypoints").getJSONArray(name).floats()

private fun Keypoint.differenceTo(person: JSONObject): Double = Replay.difference(floatArrayOf(x, y), recorded(person).copyOf(2)).toDouble()
