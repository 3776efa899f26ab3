package {{ id }}

import org.json.JSONObject
import java.text.Normalizer
import java.util.Locale

/**
 * Text to token ids and back, as a `tokenizer.json` of Hugging Face's tokenizers says.
 *
 * It writes ([decode]) what byte-level BPE (Whisper), WordPiece (BLIP) and WordLevel models say, and reads ([encode]) text for the latter two.
 */
public class Tokenizer private constructor(
    private val vocabulary: Map<String, Int>,
    private val added: Map<String, Int>,
    private val special: Set<Int>,
    private val splitter: TextSplitter?,
    private val words: WordModel?,
    private val join: (List<String>) -> String,
) {
    private val tokens: Map<Int, String> = vocabulary.entries.associate { it.value to it.key } + added.entries.associate { it.value to it.key }

    /** The text of [ids]; special tokens, and ids that are none, are left out. */
    public fun decode(ids: List<Int>): String = join(ids.filter { it !in special }.mapNotNull(tokens::get))

    /** The ids of [text], without the special tokens that begin and end one. Throws IllegalArgumentException for a tokenizer that cannot [encode]. */
    public fun encode(text: String): List<Int> {
        require(splitter != null && words != null) { "This tokenizer only writes: text is read by WordPiece and WordLevel, without truncation and padding." }
        return splitAtAdded(text).flatMap { part -> added[part]?.let(::listOf) ?: splitter.split(part).flatMap(words::ids) }
    }

    /** The parts of [text] between added tokens, and these; the longest first where several begin at one place. */
    private fun splitAtAdded(text: String): List<String> {
        if (added.isEmpty()) return listOf(text)
        val parts = mutableListOf<String>()
        var begin = 0
        for (found in added.keys.sortedByDescending { it.length }.joinToString("|", transform = Regex::escape).toRegex().findAll(text)) {
            parts += listOf(text.substring(begin, found.range.first), found.value)
            begin = found.range.last + 1
        }
        return parts + text.substring(begin)
    }

    public companion object {
        /** Reads the text of a `tokenizer.json`. Throws org.json.JSONException, or IllegalArgumentException for a kind that is not known here. */
        public fun parse(json: String): Tokenizer {
            val all = JSONObject(json)
            val model = all.getJSONObject("model")
            require(model.type in KINDS) { "A tokenizer of the kind ${model.type} is not known here; ${KINDS.joinToString()} are." }
            val vocabulary = model.getJSONObject("vocab").let { it.keys().asSequence().associateWith(it::getInt) }
            val added = all.optJSONArray("added_tokens")?.objects().orEmpty()
            return Tokenizer(
                vocabulary,
                added.associate { it.getString("content") to it.getInt("id") },
                added.filter { it.getBoolean("special") }.map { it.getInt("id") }.toSet(),
                if (canRead(all)) TextSplitter.of(all.optJSONObject("normalizer"), all.getJSONObject("pre_tokenizer").getString("type")) else null,
                wordModel(model, vocabulary),
                joiner(all.optJSONObject("decoder")),
            )
        }

        /** Whether text can be read: not with merges, not where tokens are looked for in other ways, and not where texts are cut or filled up. */
        private fun canRead(all: JSONObject): Boolean =
            all.getJSONObject("model").type != "BPE" && all.isNull("truncation") && all.isNull("padding") &&
                all.optJSONArray("added_tokens")?.objects().orEmpty().none { token ->
                    listOf("single_word", "lstrip", "rstrip", "normalized").any { token.optBoolean(it) }
                }

        private val KINDS = listOf("BPE", "WordPiece", "WordLevel")

        /** What reads words; null for merges of bytes. */
        private fun wordModel(model: JSONObject, vocabulary: Map<String, Int>): WordModel? = when (model.type) {
            "WordLevel" -> WordLevel(vocabulary, model.getString("unk_token"))
            "WordPiece" -> WordPiece(
                vocabulary, model.getString("unk_token"), model.getString("continuing_subword_prefix"), model.getInt("max_input_chars_per_word"),
            )
            else -> null
        }

        private fun joiner(decoder: JSONObject?): (List<String>) -> String = when (val type = decoder?.type) {
            null -> { tokens -> tokens.joinToString(" ") }
            "ByteLevel" -> ::joinBytes
            "WordPiece" -> { tokens -> joinPieces(tokens, decoder.getString("prefix"), decoder.getBoolean("cleanup")) }
            else -> throw IllegalArgumentException("A decoder of the kind $type is not known here; ByteLevel and WordPiece are.")
        }
    }
}

private val JSONObject.type: String get() = optString("type", "BPE")

/** Each character of a token stands for a byte; a token that has others stands for itself. */
private fun joinBytes(tokens: List<String>): String {
    val bytes = tokens.flatMap { token ->
        val own = token.map { BYTE_OF[it] }
        if (own.all { it != null }) own.map { it!! } else token.toByteArray().asList()
    }
    return utf8(bytes.toByteArray())
}

/** UTF-8 to text; where bytes are only the beginning of a character they become one U+FFFD, as in Rust. Java's own decoders do not agree on that. */
private fun utf8(bytes: ByteArray): String = buildString {
    var at = 0
    while (at < bytes.size) {
        val lead = bytes[at].toInt() and 0xff
        val length = when (lead) {
            in 0x00..0x7f -> 1
            in 0xc2..0xdf -> 2
            in 0xe0..0xef -> 3
            in 0xf0..0xf4 -> 4
            else -> 0
        }
        var found = 1
        while (found < length && at + found < bytes.size && (bytes[at + found].toInt() and 0xff) in continuation(lead, found)) found++
        append(if (found == length) String(bytes, at, length, Charsets.UTF_8) else "\ufffd")
        at += found
    }
}

/** The bytes that may stand at [index] of a character that begins with [lead]. */
private fun continuation(lead: Int, index: Int): IntRange = when {
    index == 1 && lead == 0xe0 -> 0xa0..0xbf
    index == 1 && lead == 0xed -> 0x80..0x9f
    index == 1 && lead == 0xf0 -> 0x90..0xbf
    index == 1 && lead == 0xf4 -> 0x80..0x8f
    else -> 0x80..0xbf
}

/** The printable bytes of Latin-1 are written as they are, the others as the characters from 256 on. */
private val BYTE_OF: Map<Char, Byte> = buildMap {
    val printable = ('!'..'~') + ('\u00a1'..'\u00ac') + ('\u00ae'..'\u00ff')
    var next = 256
    for (byte in 0..255) put(if (byte.toChar() in printable) byte.toChar() else (next++).toChar(), byte.toByte())
}

private fun joinPieces(tokens: List<String>, prefix: String, cleanup: Boolean): String = tokens.withIndex().joinToString("") { (index, token) ->
    val piece = if (index == 0) token else if (token.startsWith(prefix)) token.removePrefix(prefix) else " $token"
    if (cleanup) CLEANED.fold(piece) { text, (from, to) -> text.replace(from, to) } else piece
}

/** How spaces before punctuation are taken out, in this order. */
private val CLEANED = listOf(
    " ." to ".", " ?" to "?", " !" to "!", " ," to ",", " ' " to "'", " n't" to "n't", " 'm" to "'m", " do not" to " don't", " 's" to "'s",
    " 've" to "'ve", " 're" to "'re",
)

/** A word to token ids. */
private fun interface WordModel {
    fun ids(word: String): List<Int>
}

private class WordLevel(private val vocabulary: Map<String, Int>, private val unknown: String) : WordModel {
    override fun ids(word: String): List<Int> = listOf(vocabulary[word] ?: vocabulary.getValue(unknown))
}

/** The longest known beginning of a word, then of what is left of it; a word of which some part is unknown is unknown. */
private class WordPiece(
    private val vocabulary: Map<String, Int>,
    private val unknown: String,
    private val prefix: String,
    private val longest: Int,
) : WordModel {
    override fun ids(word: String): List<Int> {
        val nothing = listOf(vocabulary.getValue(unknown))
        if (word.codePointCount(0, word.length) > longest) return nothing
        val ids = mutableListOf<Int>()
        var start = 0
        while (start < word.length) {
            val begin = if (start == 0) "" else prefix
            val end = (word.length downTo start + 1).firstOrNull { begin + word.substring(start, it) in vocabulary } ?: return nothing
            ids += vocabulary.getValue(begin + word.substring(start, end))
            start = end
        }
        return ids
    }
}

/** Text to the words that a model looks up, by character classes: normalised as BERT does, or not; split as BERT does, or as the regex `\w+|[^\w\s]+`. */
private class TextSplitter(private val normalize: (String) -> String, private val kindOf: (Int) -> Kind) {
    enum class Kind {
        /** Splits, and is left out. */
        SPACE,

        /** Goes on as long as the kind does. */
        WORD,
        SIGNS,

        /** A word of its own. */
        ALONE,
    }

    fun split(text: String): List<String> {
        val words = mutableListOf<StringBuilder>()
        var last = Kind.SPACE
        for (character in normalize(text).characters()) {
            val kind = kindOf(character)
            if (kind != Kind.SPACE && (kind != last || kind == Kind.ALONE)) words += StringBuilder()
            if (kind != Kind.SPACE) words.last().appendCodePoint(character)
            last = kind
        }
        return words.map(StringBuilder::toString)
    }

    companion object {
        fun of(normalizer: JSONObject?, preTokenizer: String): TextSplitter {
            val normalize: (String) -> String = when (val type = normalizer?.type) {
                null -> { text -> text }
                "BertNormalizer" -> BertNormalizer.of(normalizer)::normalize
                else -> throw IllegalArgumentException("A normalizer of the kind $type is not known here; BertNormalizer is.")
            }
            return TextSplitter(
                normalize,
                when (preTokenizer) {
                    "BertPreTokenizer" -> ::bertKind
                    "Whitespace" -> ::regexKind
                    else -> throw IllegalArgumentException("A pre-tokenizer of the kind $preTokenizer is not known here; BertPreTokenizer and Whitespace are.")
                },
            )
        }

        private fun bertKind(character: Int): Kind = when {
            isWhiteSpace(character) -> Kind.SPACE
            isPunctuation(character) -> Kind.ALONE
            else -> Kind.WORD
        }

        private fun regexKind(character: Int): Kind = when {
            isWhiteSpace(character) -> Kind.SPACE
            isOfWord(character) -> Kind.WORD
            else -> Kind.SIGNS
        }
    }
}

/** BERT's normalisation: no control characters, ideographs as words, no accents, lower case. */
private class BertNormalizer(private val clean: Boolean, private val ideographs: Boolean, private val stripAccents: Boolean, private val lowercase: Boolean) {
    fun normalize(text: String): String {
        var said = text
        if (clean) said = said.mapCodePoints { if (isControl(it)) "" else if (isWhiteSpace(it)) " " else null }
        if (ideographs) said = said.mapCodePoints { if (isIdeograph(it)) " ${String(Character.toChars(it))} " else null }
        if (stripAccents) said = Normalizer.normalize(said, Normalizer.Form.NFD).mapCodePoints { if (typeOf(it) == Character.NON_SPACING_MARK) "" else null }
        return if (lowercase) said.mapCodePoints { String(Character.toChars(it)).lowercase(Locale.ROOT) } else said
    }

    companion object {
        fun of(json: JSONObject): BertNormalizer {
            val lowercase = json.getBoolean("lowercase")
            val strip = if (json.isNull("strip_accents")) lowercase else json.getBoolean("strip_accents")
            return BertNormalizer(json.getBoolean("clean_text"), json.getBoolean("handle_chinese_chars"), strip, lowercase)
        }
    }
}

/** The text with each character replaced; null keeps it. */
private fun String.mapCodePoints(replace: (Int) -> String?): String = buildString {
    for (character in this@mapCodePoints.characters()) {
        val other = replace(character)
        if (other == null) appendCodePoint(character) else append(other)
    }
}

private fun String.characters(): Sequence<Int> = sequence {
    var index = 0
    while (index < length) {
        val character = codePointAt(index)
        yield(character)
        index += Character.charCount(character)
    }
}

private fun typeOf(character: Int): Byte = Character.getType(character).toByte()

/** Unicode's property White_Space. */
private fun isWhiteSpace(character: Int): Boolean =
    character in 0x09..0x0d || character == 0x85 ||
        typeOf(character) in setOf(Character.SPACE_SEPARATOR, Character.LINE_SEPARATOR, Character.PARAGRAPH_SEPARATOR)

/** Characters that are none: controls, formats, unassigned, private; not the tabulator and the ends of lines. */
private fun isControl(character: Int): Boolean =
    character == 0xfffd || (character !in setOf(0x09, 0x0a, 0x0d) && typeOf(character) in CONTROLS)

private val CONTROLS = setOf(Character.CONTROL, Character.FORMAT, Character.UNASSIGNED, Character.PRIVATE_USE, Character.SURROGATE)

/** ASCII's signs, and Unicode's categories of punctuation. */
private fun isPunctuation(character: Int): Boolean =
    character in 0x21..0x2f || character in 0x3a..0x40 || character in 0x5b..0x60 || character in 0x7b..0x7e || typeOf(character) in PUNCTUATION

private val PUNCTUATION = setOf(
    Character.CONNECTOR_PUNCTUATION, Character.DASH_PUNCTUATION, Character.START_PUNCTUATION, Character.END_PUNCTUATION,
    Character.INITIAL_QUOTE_PUNCTUATION, Character.FINAL_QUOTE_PUNCTUATION, Character.OTHER_PUNCTUATION,
)

/** The class `\w` of Unicode's regular expressions. */
private fun isOfWord(character: Int): Boolean =
    Character.isAlphabetic(character) || character == 0x200c || character == 0x200d || typeOf(character) in setOf(
        Character.NON_SPACING_MARK, Character.ENCLOSING_MARK, Character.COMBINING_SPACING_MARK, Character.DECIMAL_DIGIT_NUMBER, Character.CONNECTOR_PUNCTUATION,
    )

/** The blocks of ideographs that BERT takes as words of their own. */
private fun isIdeograph(character: Int): Boolean = IDEOGRAPHS.any { character in it }

private val IDEOGRAPHS = listOf(
    0x4e00..0x9fff, 0x3400..0x4dbf, 0x20000..0x2a6df, 0x2a700..0x2b73f, 0x2b740..0x2b81f, 0x2b920..0x2ceaf, 0xf900..0xfaff, 0x2f800..0x2fa1f,
)
