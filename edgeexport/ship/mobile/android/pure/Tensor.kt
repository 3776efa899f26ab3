package {{ id }}

/** A tensor that the program takes or returns: a [shape], and data in row-major order without gaps. */
public sealed interface Tensor {
    /** The size of each dimension; empty for a single value. */
    public val shape: LongArray
}

/** A tensor of float32. Throws IllegalArgumentException when [data] has another number of elements than [shape]. */
public class FloatTensor(override val shape: LongArray, public val data: FloatArray) : Tensor {
    init {
        requireElements(shape, data.size)
    }

    /** What stands at [index] of the first dimension, as a copy. */
    internal fun item(index: Int): FloatArray {
        val size = data.size / shape[0].toInt()
        return data.copyOfRange(index * size, (index + 1) * size)
    }
}

/** A tensor of int64. Throws IllegalArgumentException when [data] has another number of elements than [shape]. */
public class LongTensor(override val shape: LongArray, public val data: LongArray) : Tensor {
    init {
        requireElements(shape, data.size)
    }
}

/** A tensor of int32. Throws IllegalArgumentException when [data] has another number of elements than [shape]. */
public class IntTensor(override val shape: LongArray, public val data: IntArray) : Tensor {
    init {
        requireElements(shape, data.size)
    }
}

/** A tensor of uint8. Throws IllegalArgumentException when [data] has another number of elements than [shape]. */
public class ByteTensor(override val shape: LongArray, public val data: ByteArray) : Tensor {
    init {
        requireElements(shape, data.size)
    }
}

private fun requireElements(shape: LongArray, elements: Int) {
    val wanted = shape.fold(1L, Long::times)
    require(wanted == elements.toLong()) { "A tensor of shape ${shape.contentToString()} has $wanted elements; $elements were given." }
}
