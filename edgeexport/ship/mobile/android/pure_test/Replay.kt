package {{ id }}

import kotlin.math.abs

/** Answers calls from a record: each must be the recorded one, with floats within [FLOATS]. Throws AssertionError for another. */
public class Replay(private val calls: List<GoldenCall>) : Methods {
    private var next = 0

    /** The largest difference between a given float and the recorded one. */
    public var largestDifference: Float = 0f
        private set

    override fun call(method: String, inputs: List<Tensor>): List<Tensor> {
        val recorded = calls.getOrNull(next) ?: throw AssertionError("Call ${next + 1}, of '$method', is not recorded: ${calls.size} are.")
        val where = "call ${next + 1} of ${calls.size}"
        if (method != recorded.method) throw AssertionError("$where is of '$method'; recorded is '${recorded.method}'.")
        if (inputs.size != recorded.inputs.size) throw AssertionError("$where: '$method' was given ${inputs.size} tensors, recorded are ${recorded.inputs.size}.")
        inputs.zip(recorded.inputs) { given, wanted -> compare(given, wanted.tensor, "$where: '${wanted.name}' of '$method'") }
        next++
        return recorded.outputs.map(NamedTensor::tensor)
    }

    /** Throws AssertionError unless all recorded calls were made. */
    override fun close() {
        if (next < calls.size) throw AssertionError("$next of ${calls.size} recorded calls were made; next would be '${calls[next].method}'.")
    }

    private fun compare(given: Tensor, wanted: Tensor, where: String) {
        if (given.javaClass != wanted.javaClass || !given.shape.contentEquals(wanted.shape)) {
            throw AssertionError("$where is a ${described(given)}, not a ${described(wanted)}.")
        }
        val equal = when (given) {
            is FloatTensor -> difference(given.data, (wanted as FloatTensor).data).also { largestDifference = maxOf(largestDifference, it) } <= FLOATS
            is LongTensor -> given.data.contentEquals((wanted as LongTensor).data)
            is IntTensor -> given.data.contentEquals((wanted as IntTensor).data)
            is ByteTensor -> given.data.contentEquals((wanted as ByteTensor).data)
        }
        if (!equal) throw AssertionError("$where is not the recorded one${if (given is FloatTensor) ": off by up to $largestDifference" else ""}.")
    }

    private fun described(tensor: Tensor) = "${tensor.javaClass.simpleName} ${tensor.shape.contentToString()}"

    public companion object {
        /** By how much a float may be off the recorded one. */
        public const val FLOATS: Float = 1e-5f

        /** The largest difference of two arrays of one size; infinite where one has a number and the other has none. */
        internal fun difference(one: FloatArray, other: FloatArray): Float {
            var largest = 0f
            for (index in one.indices) {
                if (one[index] == other[index] || (one[index].isNaN() && other[index].isNaN())) continue
                val apart = abs(one[index] - other[index])
                largest = maxOf(largest, if (apart.isNaN()) Float.POSITIVE_INFINITY else apart)
            }
            return largest
        }
    }
}
