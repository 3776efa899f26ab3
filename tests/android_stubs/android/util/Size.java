package android.util;

public final class Size {
    public int getWidth() { return 0; }
    public int getHeight() { return 0; }
}
