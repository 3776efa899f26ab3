package android.app;

import android.content.Context;

public class Instrumentation {
    public Context getContext() { throw new UnsupportedOperationException(); }
    public Context getTargetContext() { throw new UnsupportedOperationException(); }
}
