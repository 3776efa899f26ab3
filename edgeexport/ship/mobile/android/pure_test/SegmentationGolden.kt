package {{ id }}

import org.json.JSONArray
import kotlin.math.abs

/** What segmentation says to the inputs of [run], and how far that is from the recorded result. */
public fun segmentationFigures(run: GoldenRun, methods: Methods, manifest: Manifest): List<Figure> {
    fun lists(name: String) = (run.inputs.optJSONArray(name) ?: JSONArray()).let { all -> List(all.length()) { all.getJSONArray(it).floats() } }
    val points = lists("points").map { (x, y, label) -> Point(x, y, label == 1f) }
    val boxes = lists("boxes").map { (left, top, right, bottom) -> Box(left, top, right, bottom) }
    val masks = MaskChoice.valueOf(run.inputs.getString("masks").uppercase())
    val said = SegmentationPipeline(methods, SegmentationFacts.of(manifest)).segment(run.image("image"), points, boxes, masks)
    val wanted = run.resultBytes("mask").map { it.toInt() != 0 }
    val (width, height) = run.result.getJSONObject("mask").let { it.getInt("width") to it.getInt("height") }
    return listOf(
        Figure.equal("size of the mask", said.mask.width to said.mask.height, width to height),
        Figure("pixels of the mask", wanted.indices.count { said.mask.inside.getOrNull(it) != wanted[it] }.toDouble(), 0.0),
        Figure("IoU score", abs(said.iouScore - run.result.getDouble("iou_score")), 1e-5),
        Figure("object score", abs(said.objectScore - run.result.getDouble("object_score")), 1e-5),
    )
}
