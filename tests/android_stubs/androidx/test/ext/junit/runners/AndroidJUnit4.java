package androidx.test.ext.junit.runners;

public final class AndroidJUnit4 extends org.junit.runner.Runner {}
