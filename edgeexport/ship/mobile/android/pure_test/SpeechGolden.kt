package {{ id }}

import org.json.JSONObject
import kotlin.math.abs

/** What speech recognition says to the inputs of [run], and how far that is from the recorded result. */
public fun speechFigures(run: GoldenRun, methods: Methods, manifest: Manifest, tokenizer: Tokenizer?): List<Figure> {
    val task = SpeechTask.valueOf(run.inputs.getString("task").uppercase())
    val said = SpeechPipeline(methods, SpeechFacts.of(manifest), tokenizer).transcribe(run.sound("audio"), run.inputs.text("language"), task)
    val wanted = run.result.getJSONArray("segments").objects()
    val times = said.segments.zip(wanted) { ours, theirs ->
        maxOf(abs(ours.startSeconds - theirs.getDouble("start_s")), abs(ours.endSeconds - theirs.getDouble("end_s")))
    }
    return listOf(
        Figure.equal("text", said.text, run.result.text("text")),
        Figure.equal("language", said.language, run.result.text("language")),
        Figure.equal("token ids", said.tokenIds, run.result.getJSONArray("token_ids").integers().asList()),
        Figure.equal("texts of segments", said.segments.map { it.text }, wanted.map { it.getString("text") }),
        Figure("times in s", times.maxOrNull() ?: 0.0, 1e-9),
    )
}

private fun JSONObject.text(name: String): String? = if (isNull(name)) null else getString(name)
