package {{ id }}

import org.json.JSONObject

/** The size of a tensor in one dimension: [least] to [most], both included, with the [name] of what it counts; a fixed size has none. */
internal class Size(val name: String, val least: Long, val most: Long) {
    override fun toString() = name.ifEmpty { "$least" }
}

/**
 * One tensor that a method takes or returns, in the manifest's words. [values] are the whole numbers that it may hold: one outside them reads other
 * memory, or means nothing. [firstOf] names the dimension whose size says how many values count on from this one, all in [values].
 */
internal class TensorSpec(val name: String, val type: String, val shape: List<Size>, val values: LongRange?, val firstOf: String?)

/** One method of the program. */
internal class MethodSpec(val name: String, val inputs: List<TensorSpec>, val outputs: List<TensorSpec>)

/** The methods that the program has. */
internal fun Manifest.methods(): List<MethodSpec> = json.getJSONArray("methods").objects().map { entry ->
    val sizes = entry.getJSONArray("dims").objects().associate { dim ->
        val name = dim.getString("name")
        name to sizes(entry.getString("name"), name).let { Size(name, it.first.toLong(), it.last.toLong()) }
    }
    MethodSpec(
        entry.getString("name"),
        entry.getJSONArray("inputs").objects().map { inputSpec(it, sizes) },
        entry.getJSONArray("outputs").objects().map { outputSpec(it) },
    )
}

private fun inputSpec(entry: JSONObject, sizes: Map<String, Size>): TensorSpec {
    val shape = entry.getJSONArray("shape").let { given -> List(given.length(), given::get) }.map { sizes[it] ?: fixed(it) }
    val range = entry.optJSONArray("range")?.takeUnless { entry.getString("dtype").startsWith("float") }
    val firstOf = entry.optString("first_of").takeUnless { entry.isNull("first_of") }
    return TensorSpec(entry.getString("name"), entry.getString("dtype"), shape, range?.let { it.getLong(0)..it.getLong(1) }, firstOf)
}

private fun outputSpec(entry: JSONObject): TensorSpec {
    val shape = entry.getJSONArray("shape_at_least").integers().map { fixed(it) }
    return TensorSpec(entry.getString("name"), entry.getString("dtype"), shape, null, null)
}

private fun fixed(size: Any) = (size as Int).toLong().let { Size("", it, it) }

/**
 * Methods whose inputs are held against what the program takes, before the runtime sees them: it checks the number of elements only.
 *
 * An input that is not taken is an [IllegalArgumentException] that says which, and what it must be.
 */
internal class CheckedMethods(private val methods: Methods, specs: List<MethodSpec>) : Methods {
    private val specs = specs.associateBy { it.name }

    override fun call(method: String, inputs: List<Tensor>): List<Tensor> {
        val spec = requireNotNull(specs[method]) { "There is no method '$method'. There are: ${specs.keys.joinToString()}." }
        spec.requireInputs(inputs)
        return methods.call(method, inputs).also(spec::checkOutputs)
    }

    override fun close() = methods.close()
}

private fun MethodSpec.requireInputs(given: List<Tensor>) {
    require(given.size == inputs.size) { "'$name' takes ${inputs.size} tensors (${inputs.joinToString { it.name }}); ${given.size} were given." }
    val sizes = mutableMapOf<String, Pair<Long, String>>()
    for ((spec, tensor) in inputs.zip(given)) {
        val where = "'${spec.name}' of '$name'"
        require(tensor.type == spec.type) { "$where must be ${spec.type}, not ${tensor.type}." }
        require(tensor.shape.size == spec.shape.size) { "$where must have ${spec.shape.size} dimensions ${spec.shape}, not ${tensor.shape.toList()}." }
        for (axis in spec.shape.indices) spec.requireSize(where, axis, tensor.shape[axis], sizes)
        if (spec.values != null) spec.requireValues(where, tensor, spec.values, sizes)
    }
}

private fun TensorSpec.requireSize(where: String, axis: Int, size: Long, sizes: MutableMap<String, Pair<Long, String>>) {
    val wanted = shape[axis]
    if (wanted.name.isEmpty()) {
        require(size == wanted.least) { "$where must have size ${wanted.least} in dimension $axis, not $size; its shape is $shape." }
        return
    }
    require(size in wanted.least..wanted.most) { "$where has ${wanted.name} = $size in dimension $axis; this program takes ${wanted.least} to ${wanted.most}." }
    val (seen, other) = sizes.getOrPut(wanted.name) { size to name }
    require(seen == size) { "$where has ${wanted.name} = $size, but '$other' has $seen: they must be equal." }
}

private fun TensorSpec.requireValues(where: String, tensor: Tensor, values: LongRange, sizes: Map<String, Pair<Long, String>>) {
    val numbers = tensor.wholeNumbers().toList()
    if (numbers.isEmpty()) return
    val (least, most) = numbers.min() to numbers.max()
    require(least >= values.first && most <= values.last) { "$where holds ${if (least < values.first) least else most}; it takes ${values.first} to ${values.last}." }
    val count = sizes[firstOf]?.first ?: 1L
    require(most + count - 1 <= values.last) { "$where holds $most, the first of $count $firstOf; the last may be at ${values.last}." }
}

private fun MethodSpec.checkOutputs(given: List<Tensor>) {
    check(given.size == outputs.size) { "'$name' returned ${given.size} tensors, not ${outputs.size}: the program is another than this code was made for." }
    for ((spec, tensor) in outputs.zip(given)) {
        check(tensor.type == spec.type && tensor.shape.size == spec.shape.size) {
            "'${spec.name}' of '$name' came as ${tensor.type} ${tensor.shape.toList()}, not as ${spec.type} with ${spec.shape.size} dimensions."
        }
    }
}

/** The element type, as the manifest calls it. */
private val Tensor.type: String
    get() = when (this) {
        is FloatTensor -> "float32"
        is LongTensor -> "int64"
        is IntTensor -> "int32"
        is ByteTensor -> "uint8"
    }

private fun Tensor.wholeNumbers(): Sequence<Long> = when (this) {
    is FloatTensor -> emptySequence()
    is LongTensor -> data.asSequence()
    is IntTensor -> data.asSequence().map { it.toLong() }
    is ByteTensor -> data.asSequence().map { it.toLong() and 0xff }
}
