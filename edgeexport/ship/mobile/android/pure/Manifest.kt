package {{ id }}

import org.json.JSONArray
import org.json.JSONObject

/**
 * What the program's `manifest.json` says: [json] is the whole of it.
 *
 * The facts of a pipeline are read from here, so that no number of the model is written down twice.
 */
public class Manifest(public val json: JSONObject) {
    /** What an app needs beside the program: sizes, normalisation, labels, token ids. */
    internal val prepare: JSONObject get() = json.getJSONObject("prepare")

    /** The sizes that a dimension of [method] may have, as they were verified when the program was built. */
    public fun sizes(method: String, dimension: String): IntRange {
        val dimensions = json.getJSONArray("methods").objects().single { it.getString("name") == method }.getJSONArray("dims")
        val entry = dimensions.objects().single { it.getString("name") == dimension }
        val bounds = entry.optJSONArray("verified") ?: entry.getJSONArray("asked")
        return bounds.getInt(0)..bounds.getInt(1)
    }

    /** The mean and standard deviation of the model's images. */
    internal fun normalization(): Normalization = Normalization(prepare.getJSONArray("mean").floats(), prepare.getJSONArray("std").floats())

    public companion object {
        /** Reads the text of a `manifest.json`. Throws org.json.JSONException when it is not one. */
        public fun parse(text: String): Manifest = Manifest(JSONObject(text))
    }
}

internal fun JSONArray.objects(): List<JSONObject> = List(length(), ::getJSONObject)

internal fun JSONArray.strings(): List<String> = List(length(), ::getString)

internal fun JSONArray.integers(): IntArray = IntArray(length(), ::getInt)

internal fun JSONArray.floats(): FloatArray = FloatArray(length()) { getDouble(it).toFloat() }
