package {{ id }}

/** What captioning needs to know of its model: prompt and caption together have at most [textPositions] tokens. */
public class CaptionFacts internal constructor(
    public val textPositions: Int,
    internal val imageSize: Int,
    internal val normalization: Normalization,
    internal val start: Int,
    internal val end: Int,
) {
    public companion object {
        /** Reads the facts of the program. Throws org.json.JSONException when they are not there. */
        public fun of(manifest: Manifest): CaptionFacts = with(manifest.prepare) {
            CaptionFacts(getInt("text_positions"), getInt("image_size"), manifest.normalization(), getInt("start"), getInt("end"))
        }
    }
}

/** A caption: its [text], which is null where the package has no tokenizer, and its [tokenIds], the prompt's among them. */
public data class Caption(val text: String?, val tokenIds: List<Int>)

/** Image captioning: a photo, and a beginning of the caption if one is wanted, to a caption. */
public class CaptionPipeline(private val methods: Methods, private val facts: CaptionFacts, private val tokenizer: Tokenizer?) {
    /**
     * Captions a photo, greedily, with up to [maxTokens] tokens after [prompt], a beginning such as "a photo of".
     *
     * Throws IllegalArgumentException when these are too many for the model, or there is a prompt and no tokenizer.
     */
    public fun caption(image: RgbImage, prompt: String? = null, maxTokens: Int = 20): Caption {
        val begin = promptIds(prompt)
        val most = facts.textPositions - begin.size
        require(maxTokens in 1..most) { "maxTokens is 1 to $most here, not $maxTokens." }
        val resized = image.resize(facts.imageSize, facts.imageSize, Resampling.BICUBIC)
        val seen = methods.call("encode_image", listOf(resized.toTensor(facts.normalization)))
        val said = begin.drop(1) + generate(TextDecoder(methods, seen), begin, maxTokens)
        return Caption(tokenizer?.decode(said), said)
    }

    private fun promptIds(prompt: String?): List<Int> {
        if (prompt.isNullOrEmpty()) return listOf(facts.start)
        requireNotNull(tokenizer) { "A prompt needs a tokenizer, and this package has none." }
        val ids = listOf(facts.start) + tokenizer.encode(prompt)
        require(ids.size < facts.textPositions) { "The prompt has ${ids.size} tokens; prompt and caption together may have ${facts.textPositions}." }
        return ids
    }

    /** Up to [count] token ids after [begin], the likeliest at each place; without the one that ends the caption. */
    private fun generate(decoder: TextDecoder, begin: List<Int>, count: Int): List<Int> {
        val tokens = mutableListOf<Int>()
        var logits = decoder.read(begin, 0)
        while (true) {
            val token = logits.indexOfLargest()
            if (token == facts.end) return tokens
            tokens += token
            if (tokens.size == count) return tokens
            logits = decoder.next(token, begin.size + tokens.size - 1)
        }
    }
}
