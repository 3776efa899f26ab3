package {{ id }}

import org.json.JSONObject

/** What captioning says to the inputs of [run], and how far that is from the recorded result. */
public fun captionFigures(run: GoldenRun, methods: Methods, manifest: Manifest, tokenizer: Tokenizer?): List<Figure> {
    val prompt = run.inputs.text("prompt")
    val said = CaptionPipeline(methods, CaptionFacts.of(manifest), tokenizer).caption(run.image("image"), prompt, run.inputs.getInt("max_tokens"))
    return listOf(
        Figure.equal("caption", said.text, run.result.text("caption")),
        Figure.equal("token ids", said.tokenIds, run.result.getJSONArray("token_ids").integers().asList()),
    )
}

private fun JSONObject.text(name: String): String? = if (isNull(name)) null else getString(name)
