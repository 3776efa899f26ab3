package {{ id }}

import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder
import org.json.JSONArray
import org.json.JSONObject

/** What the tests ask the pure files, one JSON line each on standard input, answered by one on standard output. */
public fun main() {
    generateSequence(::readlnOrNull).forEach { line ->
        val asked = JSONObject(line)
        println(JSONObject(mapOf("answer" to answer(asked))))
    }
}

private fun answer(asked: JSONObject): Any = try {
    when (val what = asked.getString("do")) {
        "resize" -> resize(asked)
        "letterbox" -> letterbox(asked)
        "interpolate" -> interpolated(asked)
        "decode" -> with(Tokenizer.parse(File(asked.getString("tokenizer")).readText())) {
            JSONArray(asked.getJSONArray("lists").let { all -> List(all.length()) { decode(all.getJSONArray(it).integers().asList()) } })
        }
        "encode" -> with(Tokenizer.parse(File(asked.getString("tokenizer")).readText())) {
            JSONArray(asked.getJSONArray("texts").strings().map { JSONArray(encode(it)) })
        }
        "suppress" -> suppressed(asked)
        "replay" -> replay(asked)
        else -> error("'$what' is not known here.")
    }
} catch (error: AssertionError) {
    JSONObject(mapOf("failed" to error.message))
} catch (error: IllegalArgumentException) {
    JSONObject(mapOf("refused" to error.message))
} catch (error: Exception) {
    JSONObject(mapOf("broken" to error.stackTraceToString()))
}

private fun image(asked: JSONObject) = RgbImage(asked.getInt("width"), asked.getInt("height"), File(asked.getString("file")).readBytes())

private fun written(asked: JSONObject, bytes: ByteArray): String = asked.getString("out").also { File(it).writeBytes(bytes) }

private fun bytesOf(floats: FloatArray): ByteArray =
    ByteBuffer.allocate(4 * floats.size).order(ByteOrder.LITTLE_ENDIAN).also { it.asFloatBuffer().put(floats) }.array()

private fun floatsOf(file: String): FloatArray =
    ByteBuffer.wrap(File(file).readBytes()).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().let { from -> FloatArray(from.remaining()).also(from::get) }

private fun resize(asked: JSONObject): String =
    written(asked, image(asked).resize(asked.getInt("to_width"), asked.getInt("to_height"), Resampling.valueOf(asked.getString("resampling"))).pixels)

private fun letterbox(asked: JSONObject): String {
    val photo = image(asked)
    return written(asked, Fit.of(photo, asked.getInt("side")).letterbox(photo, asked.getInt("padding")).pixels)
}

private fun interpolated(asked: JSONObject): String = written(
    asked,
    bytesOf(interpolate(floatsOf(asked.getString("file")), asked.getInt("width"), asked.getInt("height"), asked.getInt("to_width"), asked.getInt("to_height"))),
)

private fun suppressed(asked: JSONObject): JSONArray {
    val scores = floatsOf(asked.getString("scores"))
    return JSONArray(suppress(floatsOf(asked.getString("boxes")), scores, scores.indices.toList(), asked.getDouble("iou").toFloat(), asked.getInt("limit")))
}

private fun replay(asked: JSONObject): JSONArray {
    val golden = Golden.of(File(asked.getString("golden")))
    val manifest = Manifest.parse(File(asked.getString("manifest")).readText())
    val tokenizer = asked.optString("tokenizer").ifEmpty { null }?.let { Tokenizer.parse(File(it).readText()) }
    return JSONArray(golden.runs.map { run -> JSONObject(figures(golden.pipeline, run, manifest, tokenizer)) })
}

private fun figures(pipeline: String?, run: GoldenRun, manifest: Manifest, tokenizer: Tokenizer?): Map<String, Any> {
    val methods = Replay(run.calls)
    val figures = methods.use {
        when (pipeline) {
            "segmentation" -> segmentationFigures(run, it, manifest)
            "speech" -> speechFigures(run, it, manifest, tokenizer)
            "captions" -> captionFigures(run, it, manifest, tokenizer)
            "video" -> videoFigures(run, it, manifest)
            "pose" -> poseFigures(run, it, manifest)
            else -> error("'$pipeline' is no pipeline.")
        }
    }
    val failed = figures.filter { !it.passed }
    if (failed.isNotEmpty()) throw AssertionError(failed.joinToString("; "))
    return figures.associate { it.name to it.difference } + ("inputs of calls" to methods.largestDifference.toDouble())
}
