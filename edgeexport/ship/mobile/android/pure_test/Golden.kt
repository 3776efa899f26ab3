package {{ id }}

import org.json.JSONArray
import org.json.JSONObject
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** A call of a method as the Python pipeline made it. */
public class GoldenCall(public val method: String, public val inputs: List<NamedTensor>, public val outputs: List<NamedTensor>)

/** A tensor and what the manifest calls it. */
public class NamedTensor(public val name: String, public val tensor: Tensor)

/** A call whose answer is eager PyTorch's: the program's may differ by [maxAbsRelative] of its range. Cases are called in their order. */
public class GoldenCase(public val call: GoldenCall, public val maxAbsRelative: Double)

/** One run of the pipeline: [inputs] and [result] as in the record, with the calls between them. */
public class GoldenRun(public val inputs: JSONObject, public val calls: List<GoldenCall>, public val result: JSONObject, private val read: (String) -> ByteArray) {
    /** The photo that is the input [name]. */
    public fun image(name: String): RgbImage = image(inputs.getJSONObject(name))

    /** The frames that are the input [name]. */
    public fun images(name: String): List<RgbImage> = inputs.getJSONObject(name).getJSONArray("images").objects().map(::image)

    /** The sound that is the input [name]. */
    public fun sound(name: String): FloatArray = floats(read(inputs.getJSONObject(name).getString("file")))

    /** The bytes of the array that is the part [name] of the result. */
    public fun resultBytes(name: String): ByteArray = read(result.getJSONObject(name).getString("file"))

    private fun image(json: JSONObject) = RgbImage(json.getInt("width"), json.getInt("height"), read(json.getString("file")))
}

/** The record of what the Python pipeline said; [read] gives the bytes of a file of its tensors. */
public class Golden(json: String, private val read: (String) -> ByteArray) {
    private val all = JSONObject(json)

    /** The pipeline, or null where the package has the program's methods only. */
    public val pipeline: String? = if (all.isNull("pipeline")) null else all.getString("pipeline")

    /** The runs of the pipeline. */
    public val runs: List<GoldenRun> by lazy {
        all.getJSONArray("runs").objects().map { run ->
            GoldenRun(run.getJSONObject("inputs"), run.getJSONArray("calls").objects().map(::call), run.getJSONObject("result"), read)
        }
    }

    /** The least case of each method. */
    public val cases: List<GoldenCase> by lazy { all.getJSONArray("cases").objects().map { GoldenCase(call(it), it.getDouble("max_abs_relative")) } }

    private fun call(json: JSONObject) = GoldenCall(json.getString("method"), tensors(json.getJSONArray("inputs")), tensors(json.getJSONArray("outputs")))

    private fun tensors(json: JSONArray): List<NamedTensor> = json.objects().map { NamedTensor(it.getString("name"), tensor(it)) }

    private fun tensor(json: JSONObject): Tensor {
        val shape = json.getJSONArray("shape").let { sizes -> LongArray(sizes.length(), sizes::getLong) }
        val bytes = read(json.getString("file"))
        return when (val type = json.getString("dtype")) {
            "float32" -> FloatTensor(shape, floats(bytes))
            "int64" -> LongTensor(shape, little(bytes).asLongBuffer().let { from -> LongArray(from.remaining()).also(from::get) })
            "int32" -> IntTensor(shape, little(bytes).asIntBuffer().let { from -> IntArray(from.remaining()).also(from::get) })
            "uint8" -> ByteTensor(shape, bytes)
            else -> throw IllegalArgumentException("Tensors of $type are not known here.")
        }
    }

    public companion object {
        /** Reads the record in a [folder]. */
        public fun of(folder: File): Golden = Golden(File(folder, "golden.json").readText()) { File(folder, "tensors/$it").readBytes() }
    }
}

private fun little(bytes: ByteArray): ByteBuffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)

private fun floats(bytes: ByteArray): FloatArray = little(bytes).asFloatBuffer().let { from -> FloatArray(from.remaining()).also(from::get) }
