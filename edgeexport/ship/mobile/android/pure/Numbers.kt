package {{ id }}

import kotlin.math.exp
import kotlin.math.ln
import kotlin.math.round

/** The index of the largest value; of equal ones the first. */
internal fun FloatArray.indexOfLargest(): Int {
    var best = 0
    for (index in indices) if (this[index] > this[best]) best = index
    return best
}

/** The logarithm of the sum of the exponentials of the values from [from] up to [until]; minus infinity where there is none. */
internal fun FloatArray.logSumExp(from: Int = 0, until: Int = size): Double {
    val largest = (from until until).maxOfOrNull { this[it] } ?: Float.NEGATIVE_INFINITY
    if (largest == Float.NEGATIVE_INFINITY) return Double.NEGATIVE_INFINITY
    var sum = 0.0
    for (index in from until until) sum += exp(this[index].toDouble() - largest)
    return largest + ln(sum)
}

/** The values as shares that add up to 1. */
internal fun FloatArray.softmax(): DoubleArray {
    val total = logSumExp()
    return DoubleArray(size) { exp(this[it] - total) }
}

/** The nearest whole number; halfway between two, the even one, as Python rounds. */
internal fun Double.roundHalfEven(): Int = round(this).toInt()
