package {{ id }}

/** How far a part of a result is from the recorded one, and how far it may be when the calls were answered from the record. */
public data class Figure(val name: String, val difference: Double, val allowed: Double) {
    /** Whether the part is right. */
    val passed: Boolean get() = difference <= allowed

    override fun toString(): String = "$name differs by $difference (allowed $allowed)"

    internal companion object {
        /** For what must be equal: 0, or the part's values as a failure. */
        fun equal(name: String, said: Any?, wanted: Any?): Figure =
            if (said == wanted) Figure(name, 0.0, 0.0) else Figure("$name ($said, recorded $wanted)", 1.0, 0.0)
    }
}
