package {{ id }}

import kotlin.math.abs

/** What video classification says to the inputs of [run], and how far that is from the recorded result. */
public fun videoFigures(run: GoldenRun, methods: Methods, manifest: Manifest): List<Figure> {
    val said = VideoPipeline(methods, VideoFacts.of(manifest)).classify(run.images("video"), run.inputs.getInt("clips"))
    val wanted = run.result.getJSONArray("top5").objects()
    val apart = said.zip(wanted) { ours, theirs -> abs(ours.probability - theirs.getDouble("probability")) }
    return listOf(
        Figure.equal("labels", said.map { it.label }, wanted.map { it.getString("label") }),
        Figure("probabilities", apart.maxOrNull() ?: 0.0, 1e-5),
    )
}
