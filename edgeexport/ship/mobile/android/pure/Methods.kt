package {{ id }}

/** The methods of a program, by name. Closing it frees the program. */
public interface Methods : AutoCloseable {
    /**
     * Runs [method] on [inputs], in the order of the manifest, and returns copies of its outputs.
     *
     * Calls must not overlap: the program keeps intermediate values, and the cache of a text, between them.
     */
    public fun call(method: String, inputs: List<Tensor>): List<Tensor>
}

/** Runs a method whose outputs are all float32. */
internal fun Methods.callForFloats(method: String, inputs: List<Tensor>): List<FloatTensor> =
    call(method, inputs).map { it as? FloatTensor ?: error("'$method' returned a ${it.javaClass.simpleName}; this package was made for float32.") }
