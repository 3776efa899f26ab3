package org.junit;

public class Assert {
    public static void assertTrue(String message, boolean condition) {
        if (!condition) throw new AssertionError(message);
    }
}
