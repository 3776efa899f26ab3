package android.graphics;

public class Color {
    public static final int GREEN = 0xff00ff00;

    public static int rgb(int red, int green, int blue) { return 0xff000000 | red << 16 | green << 8 | blue; }
    public static int red(int color) { return color >> 16 & 0xff; }
    public static int green(int color) { return color >> 8 & 0xff; }
    public static int blue(int color) { return color & 0xff; }
}
