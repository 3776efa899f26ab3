package {{ id }}

/**
 * Writes text about one thing: [about] holds the keys and values that the encoder made of a sound or a photo.
 *
 * The prompt is fed token by token through `decode_step`. The program's `prefill` would take it at once, but on a phone each method has memory
 * of its own, so that the cache it fills is not the one that `decode_step` reads. A token at position 0 begins a new text.
 */
internal class TextDecoder(private val methods: Methods, private val about: List<Tensor>) {
    /** The logits [V] of what follows [tokens], the first of which is at [position]. */
    fun read(tokens: List<Int>, position: Int): FloatArray {
        lateinit var logits: FloatArray
        tokens.forEachIndexed { index, token -> logits = next(token, position + index) }
        return logits
    }

    /** The logits [V] of what follows [token] at [position]. */
    fun next(token: Int, position: Int): FloatArray {
        val place = listOf(LongTensor(longArrayOf(1, 1), longArrayOf(token.toLong())), LongTensor(longArrayOf(1), longArrayOf(position.toLong())))
        return methods.callForFloats("decode_step", place + about).first().item(0)
    }
}
