package {{ id }}

import kotlin.math.abs
import kotlin.math.exp

/** What speech recognition needs to know of its model: the rate of the sound, and token ids with the rules of decoding. */
public class SpeechFacts internal constructor(
    /** Samples a second that the sound must have. */
    public val samplingRateHz: Int,
    /** The codes of the languages that the model knows, such as "de"; empty for a model that knows English only. */
    public val languages: List<String>,
    internal val windowSamples: Int,
    internal val textPositions: Int,
    internal val multilingual: Boolean,
    internal val languageIds: Map<String, Int>,
    internal val taskIds: Map<SpeechTask, Int>,
    internal val start: Int,
    internal val end: Int,
    internal val noSpeech: Int,
    internal val noTimestamps: Int,
    internal val firstTime: Int,
    internal val latestFirstTime: Int,
    internal val secondsATime: Double,
    internal val suppressed: IntArray,
    internal val suppressedFirst: IntArray,
) {
    public companion object {
        /** Reads the facts of the program. Throws org.json.JSONException when they are not there. */
        public fun of(manifest: Manifest): SpeechFacts = with(manifest.prepare) {
            val ids = getJSONObject("languages").let { languages -> languages.keys().asSequence().associateWith(languages::getInt) }
            SpeechFacts(
                samplingRateHz = getInt("sampling_rate_hz"),
                languages = ids.keys.toList(),
                windowSamples = getInt("window_samples"),
                textPositions = getInt("text_positions"),
                multilingual = getBoolean("multilingual"),
                languageIds = ids,
                taskIds = mapOf(SpeechTask.TRANSCRIBE to getInt("transcribe"), SpeechTask.TRANSLATE to getInt("translate")),
                start = getInt("start"),
                end = getInt("end"),
                noSpeech = getInt("no_speech"),
                noTimestamps = getInt("no_timestamps"),
                firstTime = getInt("timestamps"),
                latestFirstTime = getInt("timestamps") + getInt("latest_first_timestamp"),
                secondsATime = getDouble("seconds_a_timestamp"),
                suppressed = getJSONArray("suppress").integers(),
                suppressedFirst = getJSONArray("suppress_first").integers(),
            )
        }
    }
}

/** What is written: what was said, or what it means in English. */
public enum class SpeechTask { TRANSCRIBE, TRANSLATE }

/** What was said from [startSeconds] to [endSeconds]; without a tokenizer [text] holds token ids. */
public data class SpeechSegment(val startSeconds: Double, val endSeconds: Double, val text: String)

/** What was said: [text] is null where the package has no tokenizer, [language] where the model knows English only and none was given. */
public data class Transcription(val text: String?, val language: String?, val segments: List<SpeechSegment>, val tokenIds: List<Int>)

/**
 * Speech recognition: sound of any length to text with times, by Whisper's rules.
 *
 * Greedy decoding of windows of 30 s; tokens that are no speech are suppressed, times stand in pairs and never go back.
 */
public class SpeechPipeline(private val methods: Methods, private val facts: SpeechFacts, private val tokenizer: Tokenizer?) {
    /**
     * Transcribes [sound]: mono, [SpeechFacts.samplingRateHz] (16 kHz) samples a second, from -1 to 1.
     *
     * The app gives it at that rate: `AudioRecord` records at 16 kHz on every phone; other sound it resamples first. [language] is a code such as
     * "de", detected when null. Throws IllegalArgumentException for no sound, samples that are not numbers, and what the model does not know.
     */
    public fun transcribe(sound: FloatArray, language: String? = null, task: SpeechTask = SpeechTask.TRANSCRIBE): Transcription {
        requireKnown(language, task)
        require(sound.isNotEmpty()) { "There is no sound: it has 0 samples." }
        require(sound.all(Float::isFinite)) { "The sound holds samples that are not numbers (NaN or infinity)." }
        var spoken = language
        val segments = mutableListOf<SpeechSegment>()
        val tokens = mutableListOf<Int>()
        var start = 0
        while (start < sound.size) {
            val piece = sound.copyOfRange(start, minOf(start + facts.windowSamples, sound.size))
            val window = decode(piece, spoken, task)
            if (window == null) {
                start += piece.size
                continue
            }
            spoken = spoken ?: window.language
            val split = split(window.tokens, piece.size)
            val offset = start.toDouble() / facts.samplingRateHz
            tokens += window.tokens
            segments += split.pieces.map { SpeechSegment(offset + it.start, offset + it.end, text(it.tokens)) }
            start += split.usedSamples
        }
        return Transcription(if (tokenizer == null) null else segments.joinToString("") { it.text }.trim(), spoken, segments, tokens)
    }

    private fun requireKnown(language: String?, task: SpeechTask) {
        if (facts.multilingual) {
            require(language == null || language in facts.languageIds) { "'$language' is none of the model's languages: ${facts.languages.joinToString()}." }
        } else {
            require((language == null || language == "en") && task == SpeechTask.TRANSCRIBE) { "This model knows English only: leave out language and task." }
        }
    }

    private fun text(tokens: List<Int>): String = tokenizer?.decode(tokens) ?: tokens.joinToString(" ")

    /** The token ids of one window, without the prompt and the end, and the language that they are in. */
    private class Window(val tokens: List<Int>, val language: String?)

    /** Greedy decoding of up to one window of sound; null when there is no speech in it. */
    private fun decode(piece: FloatArray, language: String?, task: SpeechTask): Window? {
        if (piece.all { abs(it) < SILENCE }) return null
        val features = methods.call("log_mel", listOf(FloatTensor(longArrayOf(piece.size.toLong()), piece)))
        val decoder = TextDecoder(methods, methods.call("encode", features))
        val first = decoder.read(listOf(facts.start), 0)
        val noSpeech = exp(first[facts.noSpeech] - first.logSumExp())
        if (!facts.multilingual) return written(decoder, first, 1, noSpeech, null)
        val spoken = language ?: facts.languageIds.maxByOrNull { (_, id) -> first[id] }!!.key
        val prompt = listOf(facts.languageIds.getValue(spoken), facts.taskIds.getValue(task))
        return written(decoder, decoder.read(prompt, 1), 1 + prompt.size, noSpeech, spoken)
    }

    /** What the decoder writes after a prompt of [position] tokens that was answered with [first]; null where that is taken for silence. */
    private fun written(decoder: TextDecoder, first: FloatArray, position: Int, noSpeech: Double, language: String?): Window? {
        val rules = TokenRules(facts)
        val tokens = mutableListOf<Int>()
        var logits = first
        var total = 0.0
        while (position + tokens.size < facts.textPositions) {
            val allowed = rules.allowed(logits, tokens)
            val token = allowed.indexOfLargest()
            total += allowed[token] - allowed.logSumExp()
            if (token == facts.end) break
            tokens += token
            if (position + tokens.size < facts.textPositions) logits = decoder.next(token, position + tokens.size - 1)
        }
        val silent = noSpeech > NO_SPEECH_PROBABILITY && total / (tokens.size + 1) < LOG_PROBABILITY
        return if (silent) null else Window(tokens, language)
    }

    /** Text from [start] to [end] seconds of a window. */
    internal class Piece(val start: Double, val end: Double, val tokens: List<Int>)

    /** The pieces of a window, and how many of its samples they use up. */
    internal class Split(val pieces: List<Piece>, val usedSamples: Int)

    /**
     * Splits the tokens of a window of [samples] where times stand in a row: they end one piece and begin the next.
     *
     * A window whose last piece was cut off by its end is used up to where that piece began; the next window starts there.
     */
    internal fun split(tokens: List<Int>, samples: Int): Split {
        val pieces = mutableListOf<Piece>()
        var begin = 0.0
        var text = mutableListOf<Int>()
        for (token in tokens) {
            if (token < facts.firstTime) {
                text += token
                continue
            }
            val time = (token - facts.firstTime) * facts.secondsATime
            if (text.isNotEmpty()) pieces += Piece(begin, time, text)
            begin = time
            text = mutableListOf()
        }
        val lastEnd = pieces.lastOrNull()?.end ?: 0.0
        val begunAtTheEnd = text.isNotEmpty() || (tokens.size > 1 && tokens[tokens.size - 2] >= facts.firstTime)
        if (samples == facts.windowSamples && lastEnd > 0.0 && begunAtTheEnd) return Split(pieces, (lastEnd * facts.samplingRateHz).roundHalfEven())
        if (text.isNotEmpty()) pieces += Piece(begin, samples.toDouble() / facts.samplingRateHz, text)
        return Split(pieces, samples)
    }

    private companion object {
        /** A window whose samples all stay below this (-80 dBFS) has no speech in it, and is not decoded. */
        const val SILENCE = 1e-4f

        // From openai/whisper: a window is taken for silence when both hold.
        const val NO_SPEECH_PROBABILITY = 0.6
        const val LOG_PROBABILITY = -1.0
    }
}

/** Which tokens may follow, as the logits processors SuppressTokens, SuppressTokensAtBegin and WhisperTimeStamp of transformers say. */
internal class TokenRules(private val facts: SpeechFacts) {
    /** A copy of [logits], minus infinity where the rules forbid a token after [tokens], those of this window so far. */
    fun allowed(logits: FloatArray, tokens: List<Int>): FloatArray {
        val allowed = logits.copyOf()
        for (token in facts.suppressed) allowed[token] = NEVER
        allowed[facts.noTimestamps] = NEVER
        if (tokens.isEmpty()) allowFirst(allowed) else allowNext(allowed, tokens)
        return allowed
    }

    /** A window begins with a time, and not a late one. */
    private fun allowFirst(allowed: FloatArray) {
        for (token in facts.suppressedFirst) allowed[token] = NEVER
        allowed.fill(NEVER, 0, facts.firstTime)
        allowed.fill(NEVER, facts.latestFirstTime + 1)
    }

    private fun allowNext(allowed: FloatArray, tokens: List<Int>) {
        val afterTime = isTime(tokens.last())
        val afterTwo = tokens.size < 2 || isTime(tokens[tokens.size - 2])
        if (afterTime && afterTwo) {
            allowed.fill(NEVER, facts.firstTime) // a segment has begun: text follows
        } else if (afterTime) {
            allowed.fill(NEVER, 0, facts.end) // a segment has ended: the next one begins, or all ends
        }
        val lastTime = tokens.lastOrNull(::isTime)
        if (lastTime != null) {
            allowed.fill(NEVER, facts.firstTime, lastTime + if (afterTime && !afterTwo) 0 else 1) // time does not go back
        }
        val likeliestWord = (0 until facts.firstTime).maxOf { allowed[it] }
        if (allowed.logSumExp(facts.firstTime) > likeliestWord) allowed.fill(NEVER, 0, facts.firstTime) // some time is likelier than any one word
    }

    private fun isTime(token: Int): Boolean = token >= facts.firstTime

    private companion object {
        const val NEVER = Float.NEGATIVE_INFINITY
    }
}
